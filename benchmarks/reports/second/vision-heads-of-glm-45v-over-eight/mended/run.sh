vllm serve zai-org/GLM-4.5V --tensor-parallel-size 4
