import os

import hydra
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from data_module import TextForgetDatasetQA
from dataloader import CustomTrainerForgetting, custom_data_collator_forget
from utils import get_model_identifiers_from_yaml


@hydra.main(version_base=None, config_path="config", config_name="forget")
def main(cfg):
    num_devices = int(os.environ.get("WORLD_SIZE", 1))
    if os.environ.get("LOCAL_RANK") is not None:
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        device_map = {"": local_rank}

    set_seed(cfg.seed)
    model_cfg = get_model_identifiers_from_yaml(cfg.model_family)
    model_id = model_cfg["hf_key"]
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    tokenizer.pad_token = tokenizer.eos_token
    dataset = TextForgetDatasetQA(cfg.data_path, tokenizer=tokenizer, model_family=cfg.model_family, max_length=500, split=cfg.split)
    steps_per_epoch = len(dataset) // (cfg.batch_size * cfg.gradient_accumulation_steps * num_devices)

    training_args = transformers.TrainingArguments(
        per_device_train_batch_size=cfg.batch_size,
        gradient_accumulation_steps=cfg.gradient_accumulation_steps,
        learning_rate=cfg.lr,
        bf16=True,
        bf16_full_eval=True,
        output_dir=cfg.save_dir,
        optim="paged_adamw_32bit",
        save_steps=steps_per_epoch,
        save_only_model=True,
        ddp_find_unused_parameters=False,
        deepspeed="config/ds_config.json",
        weight_decay=cfg.weight_decay,
        seed=cfg.seed,
    )

    model = AutoModelForCausalLM.from_pretrained(
        model_id,
        torch_dtype=torch.bfloat16,
        device_map=device_map,
    )
    trainer = CustomTrainerForgetting(
        model=model,
        tokenizer=tokenizer,
        train_dataset=dataset,
        args=training_args,
        data_collator=custom_data_collator_forget,
    )
    trainer.train()


if __name__ == "__main__":
    main()
