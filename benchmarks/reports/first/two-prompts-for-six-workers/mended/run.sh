python -m skyrl.train.entrypoints.main_base \
    trainer.placement.policy_num_gpus_per_node=6 \
    trainer.placement.ref_num_gpus_per_node=6 \
    generator.inference_engine.tensor_parallel_size=2 \
    generator.inference_engine.num_engines=1 \
    generator.n_samples_per_prompt=4 \
    trainer.train_batch_size=3
