from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.training_args import BatchSamplers

model_id = "BAAI/bge-m3"
model = SentenceTransformer(model_id, device="cuda")
loss = MultipleNegativesRankingLoss(model)

args = SentenceTransformerTrainingArguments(
    output_dir=output_path,
    fsdp=["full_shard", "auto_wrap"],
    fsdp_config={"transformer_layer_cls_to_wrap": "XLMRobertaLayer"},
    num_train_epochs=3,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    learning_rate=lr,
    warmup_ratio=warmup_ratio,
    weight_decay=weight_decay,
    fp16=False,
    bf16=True,
    batch_sampler=BatchSamplers.NO_DUPLICATES,
    eval_strategy="steps",
    eval_steps=200,
    save_strategy="steps",
    save_steps=200,
    save_total_limit=2,
    logging_steps=200,
    disable_tqdm=False,
)
