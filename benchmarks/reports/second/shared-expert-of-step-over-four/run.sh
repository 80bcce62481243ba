python3 -m sglang.launch_server --model-path stepfun-ai/Step-3.5-Flash-FP8 --tp 4 --trust-remote-code --host 0.0.0.0 --port 30000
