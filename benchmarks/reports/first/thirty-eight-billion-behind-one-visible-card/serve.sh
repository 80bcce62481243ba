CUDA_VISIBLE_DEVICES=1 swift deploy --ckpt_dir /data/XXX/InternVL2_5-38B --max_model_len 128
