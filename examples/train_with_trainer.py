"""Trains a tiny language model of random weights on made-up text with the Hugging Face Trainer.

What makes it fit to be run again are the two lines that take ``DISPATCH_EXEC_DIR`` and ``DISPATCH_RESUME_FROM``. Needs
torch, transformers and accelerate.
"""

from __future__ import annotations

import argparse
import hashlib
import os

# One thread adds up in one order, so that a run that was interrupted ends with the weights of one that was not.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WORDS = 64
LENGTH = 16


class Text:
    """Lines of words that count upwards, each from a start of its own."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        line = (torch.arange(LENGTH) + index) % WORDS
        return {"input_ids": line, "labels": line}


def main() -> None:
    """Train to the last step, from the newest save where there is one."""
    parser = argparse.ArgumentParser(description="Trains a tiny model with the Hugging Face Trainer.")
    parser.add_argument("--steps", type=int, default=200, help="the last step")
    parser.add_argument("--save-steps", type=int, default=10, help="steps between two saves")
    parser.add_argument("--width", type=int, default=32, help="the model's width; its saves grow with the square of it")
    options = parser.parse_args()

    torch.manual_seed(7)
    size = {"n_embd": options.width, "n_layer": 2, "n_head": 2, "n_positions": LENGTH}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **size))
    arguments = TrainingArguments(
        output_dir=os.environ["DISPATCH_EXEC_DIR"],
        max_steps=options.steps,
        save_steps=options.save_steps,
        save_total_limit=3,
        per_device_train_batch_size=4,
        logging_steps=options.save_steps,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=7,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Text())
    trainer.train(resume_from_checkpoint=os.environ["DISPATCH_RESUME_FROM"] or None)
    weights = b"".join(value.numpy().tobytes() for _, value in sorted(model.state_dict().items()))
    steps = {int(state["step"]) for state in trainer.optimizer.state.values()}
    print(
        f"step {trainer.state.global_step}, optimiser at {sorted(steps)}, weights {hashlib.sha256(weights).hexdigest()}"
    )


if __name__ == "__main__":
    main()
