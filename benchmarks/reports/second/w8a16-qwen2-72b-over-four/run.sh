docker run --rm --gpus '"device=1,2,3,4"' --shm-size 2g \
    -v /inworld:/inworld \
    -p 8000:8000 \
    --ipc=host \
    vllm/vllm-openai:v0.5.1 \
    --model neuralmagic/Qwen2-72B-Instruct-quantized.w8a16 \
    --max-model-len 8192 \
    --tensor-parallel-size 4 \
    --gpu-memory-utilization 0.98 \
    --served-model-name /model/llm \
    --enable-prefix-caching \
    --max-num-seqs 4 \
    --max-num-batched-tokens 32768
