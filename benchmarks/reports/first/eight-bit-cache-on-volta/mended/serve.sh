python -m vllm.entrypoints.openai.api_server --model Qwen3.6-35B-A3B-AWQ --served-model-name Qwen3.6-35B-A3B-AWQ \
    --trust-remote-code --quantization awq --dtype float16 --tensor-parallel-size 2 --gpu-memory-utilization 0.88 \
    --max-model-len 33000 --max-num-seqs 1 --max-num-batched-tokens 16384 --skip-mm-profiling --reasoning-parser qwen3 \
    --kv-cache-dtype fp8_e5m2 --host 0.0.0.0 --port 8000
