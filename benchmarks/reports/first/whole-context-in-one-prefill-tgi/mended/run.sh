docker run -d --restart=always --gpus '"device=0,1,2,3"' \
    --shm-size 10.24gb \
    -e HUGGING_FACE_HUB_TOKEN=$HUGGING_FACE_HUB_TOKEN \
    -p 5005:80 \
    -v $HOME/.cache/huggingface/hub/:/data \
    --name llama31-70b-tgi \
    ghcr.io/huggingface/text-generation-inference:2.2.0 \
    --model-id meta-llama/Meta-Llama-3.1-70B-Instruct \
    --max-input-length 65536 \
    --max-total-tokens 73728 \
    --max-stop-sequences 6 \
    --num-shard 4 --sharded true
