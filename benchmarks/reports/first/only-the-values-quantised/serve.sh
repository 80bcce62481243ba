llama-server \
    --model Qwen3-4B-Q4_K_M.gguf \
    --host 127.0.0.1 \
    --port 65090 \
    --cache-type-v q4_0
