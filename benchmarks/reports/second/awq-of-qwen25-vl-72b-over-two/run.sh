vllm serve Qwen/Qwen2.5-VL-72B-Instruct-AWQ --tensor-parallel-size 2
