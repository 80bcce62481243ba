lmdeploy serve api_server ZhipuAI/glm-4v-9b --backend turbomind --server-port 7861 --log-level INFO --quant-policy 4
