python -m lightllm.server.apiserver --model_dir /root/model_weight/qwen-1.8b/
