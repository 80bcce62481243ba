vllm serve /app/data/deepseek-v4-flash-0731/model \
    --served-model-name deepseek-v4-flash-0731 \
    --tensor-parallel-size 4 \
    --enable-expert-parallel \
    --block-size 256 \
    --gpu-memory-utilization 0.875 \
    --kv-cache-dtype fp8 \
    --enable-auto-tool-choice --tool-call-parser deepseek_v4 \
    --reasoning-parser deepseek_v4
