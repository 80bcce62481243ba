docker run --rm --gpus all --network host --ipc host \
  -v /data/gpustack_cache:/data/gpustack_cache \
  vllm/vllm-openai:v0.13.0 \
  --model Qwen/Qwen3-Embedding-0.6B --max-model-len 8192 --runner pooling --host 192.168.50.12 --port 42041 --served-model-name qwen3-embedding-0.6b
