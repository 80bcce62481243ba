docker run --gpus all -p 5001:80 -v $PWD/data:/data --pull always ghcr.io/huggingface/text-embeddings-inference:1.8 --model-id Qwen/Qwen3-Embedding-0.6B
