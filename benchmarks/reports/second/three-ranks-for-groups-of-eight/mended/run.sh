ACCELERATE_LOG_LEVEL=info accelerate launch --config_file recipes/accelerate_configs/zero3.yaml --num_processes=3 src/open_r1/grpo.py --config recipes/config_full.yaml
