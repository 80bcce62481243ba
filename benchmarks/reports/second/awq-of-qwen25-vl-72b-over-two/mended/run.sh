vllm serve Qwen/Qwen2.5-VL-72B-Instruct-AWQ --pipeline-parallel-size 2
