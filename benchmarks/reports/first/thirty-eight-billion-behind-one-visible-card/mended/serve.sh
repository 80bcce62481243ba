CUDA_VISIBLE_DEVICES=0,1,2,3 swift deploy --ckpt_dir /data/XXX/InternVL2_5-38B --max_model_len 128
