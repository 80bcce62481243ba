pip install vllm==0.5.0.post1
export API_PORT=9000
python -u -m vllm.entrypoints.openai.api_server \
        --host 0.0.0.0 \
        --port $API_PORT \
        --model $launch_model \
        --tensor-parallel-size $NUM_GPUS \
        --download-dir /data
