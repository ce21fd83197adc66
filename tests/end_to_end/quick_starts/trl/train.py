"""Supervised fine-tuning with trl, of a model that is small enough for a CPU: from the quick start of its SFTTrainer."""

import os
from dataclasses import dataclass, field

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer, TrlParser


@dataclass
class ModelArguments:
    hidden_size: int = field(default=16, metadata={"help": "of the model"})


parser = TrlParser((ModelArguments, SFTConfig))
model_args, training_args = parser.parse_args_and_config()
texts = [f"{number} and {number} is {2 * number}" for number in range(64)]
words = sorted({word for text in texts for word in text.split()})
vocabulary = {word: index for index, word in enumerate(["<pad>", "<eos>", *words])}
tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=model_args.hidden_size,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
)
trainer = SFTTrainer(
    model=model,
    args=training_args,
    train_dataset=Dataset.from_dict({"text": texts}),
    processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"),
)
trainer.train()
trainer.save_model(os.environ["SM_MODEL_DIR"])
