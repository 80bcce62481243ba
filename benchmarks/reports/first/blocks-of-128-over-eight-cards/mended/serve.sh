python3 -m sglang.launch_server --model Qwen/Qwen3-235B-A22B-FP8 --tp 8 --enable-ep-moe --reasoning-parser qwen3
