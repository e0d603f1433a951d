"""Fine-tuning BERT on texts of IMDB's lengths: the recipe beside what people write today: `python bench/text.py`.

Real tokens (no padding) per second, after a warm-up. Needs torch and transformers (PYTHONPATH=src where stoker is not
installed), and a GPU but for `--small`, which only shows that everything runs. Each contender has a process of its own.

    stoker                     the recipe, `fine_tune`, with its default settings but for the batch size
    by hand                    a loop with bf16, length buckets, ids on the device, fused AdamW, torch.compile
    HF Trainer, bf16           dynamic padding, 4 workers
    HF Trainer, old style      fp32, every text padded to the full length, batch 16: as in AI Platform's sample
    stoker, …                  the recipe without one of its parts
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

BATCH_SIZE, EPOCHS = 64, 4  # the first epoch warms up
RESULTS = Path(__file__).parent / "results" / "text.json"


@dataclass(frozen=True)
class Work:
    """The same for all: a folder with an encoder of random weights, and texts of so many tokens."""

    folder: Path
    small: bool
    batch_size: int

    @property
    def encoder(self) -> str:
        return str(self.folder / "encoder")

    @property
    def texts(self) -> str:
        return str(self.folder / "train.csv")

    @property
    def max_length(self) -> int:
        return 64 if self.small else 512

    def rows(self) -> list[list[int]]:
        """The token ids, for those who do not read texts."""
        ids = np.load(self.folder / "ids.npy")
        return np.split(ids, np.cumsum(self.lengths())[:-1])

    def lengths(self) -> np.ndarray:
        return np.load(self.folder / "lengths.npy")

    def model(self) -> Any:
        return transformers.AutoModelForSequenceClassification.from_pretrained(self.encoder)


def prepare(folder: Path, *, small: bool, samples: int, batch_size: int) -> Work:
    """Texts whose words are one token each, lengths like IMDB's: a log-normal, cut at 512."""
    work = Work(folder, small, batch_size)
    chance = np.random.default_rng(0)
    scale = 3.0 if small else 5.4
    lengths = np.clip(np.exp(chance.normal(scale, 0.6, samples)), 10, work.max_length).astype(np.int64)
    words = 500 if small else 30522
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = special + [f"w{number}" for number in range(words - len(special))]
    ids = chance.integers(len(special), words, int(lengths.sum()))
    ends = np.cumsum(lengths)
    ids[ends - lengths], ids[ends - 1] = 2, 3
    np.save(folder / "ids.npy", ids)
    np.save(folder / "lengths.npy", lengths)
    _write_texts(folder / "train.csv", ids, lengths, vocabulary)
    few = batch_size * 2
    _write_texts(folder / "test.csv", ids[: int(lengths[:few].sum())], lengths[:few], vocabulary)
    _write_encoder(work, vocabulary)
    return work


def _write_texts(path: Path, ids: np.ndarray, lengths: np.ndarray, vocabulary: list[str]) -> None:
    with path.open("w") as file:
        file.write("text,label\n")
        for number, row in enumerate(np.split(ids, np.cumsum(lengths)[:-1])):
            file.write(f"{' '.join(vocabulary[each] for each in row[1:-1])},{number % 2}\n")


def _write_encoder(work: Work, vocabulary: list[str]) -> None:
    import tokenizers

    known = {word: number for number, word in enumerate(vocabulary)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **named).save_pretrained(work.encoder)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(vocabulary), **(size if work.small else {}))
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(work.encoder)


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def stoker(work: Work, **changed: Any) -> dict[str, Any]:
    from stoker import pytorch
    from stoker.recipes.text import TextSettings, fine_tune

    began: list[float] = []
    took: list[float] = []

    class Clock(pytorch.PyTorchCallback):
        def on_training_epoch_start(self, epoch_idx: int) -> None:
            began.append(now())

        def on_training_epoch_end(self, epoch_idx: int) -> None:
            took.append(now() - began[-1])

    settings = TextSettings(
        dataset=work.texts,
        eval_dataset=str(work.folder / "test.csv"),
        model=work.encoder,
        batch_size=work.batch_size,
        num_epochs=EPOCHS,
        cache_dir=str(work.folder / "cache"),
        **({"max_length": work.max_length} if work.small else {}),
        **changed,
    )
    begin = now()
    found = fine_tune(settings, callbacks={"clock": Clock()}, progress=False)
    return {
        **_rates(work, took),
        "seconds before the first step": round(began[0] - begin, 1),
        "loss": round(found.metrics["loss"], 4),
        "settings": asdict(settings),
    }


def _rates(work: Work, took: list[float]) -> dict[str, Any]:
    tokens = int(work.lengths().sum())
    rates = [round(tokens / seconds) for seconds in took]
    return {"tokens per second": int(np.median(rates[1:])), "by epoch": rates}


def by_hand(work: Work) -> dict[str, Any]:
    """What one writes with torch alone, knowing how."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    model = work.model().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    called = torch.compile(model, dynamic=True) if gpu else model
    chance = np.random.default_rng(0)
    labels = torch.arange(len(work.lengths()), device=device) % 2
    took = []
    for _ in range(EPOCHS):
        batches = list(_bucketed(work, chance, device))
        begin = now()
        for ids, mask, rows in batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=gpu):
                logits = called(input_ids=ids, attention_mask=mask).logits
            torch.nn.functional.cross_entropy(logits.float(), labels[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
        took.append(now() - begin)
    compiled = "torch.compile(dynamic=True)" if gpu else "not compiled"
    return {**_rates(work, took), "settings": {"batch_size": work.batch_size, "compile": compiled, "padding": 16}}


def _bucketed(work: Work, chance: np.random.Generator, device: torch.device) -> Iterator[tuple[torch.Tensor, ...]]:
    rows, lengths = work.rows(), work.lengths()
    window = work.batch_size * 64
    shuffled = chance.permutation(len(rows))
    groups = [shuffled[start : start + window] for start in range(0, len(rows), window)]
    order = np.concatenate([group[np.argsort(lengths[group])] for group in groups])
    starts = chance.permutation(np.arange(0, len(order), work.batch_size))
    for start in starts:
        chosen = order[start : start + work.batch_size]
        longest = min(-(-int(lengths[chosen].max()) // 16) * 16, work.max_length)
        ids = np.zeros((len(chosen), longest), np.int64)
        for place, row in enumerate(chosen):
            ids[place, : lengths[row]] = rows[row]
        tensor = torch.from_numpy(ids).to(device)
        yield tensor, (tensor != 0).long(), torch.from_numpy(chosen).to(device)


def their_trainer(work: Work, *, old: bool) -> dict[str, Any]:
    gpu = torch.cuda.is_available()
    batch_size = 16 if old else work.batch_size
    steps, warm_up = (6, 2) if work.small else (60, 15)
    padding: dict[str, Any] = {"padding": "max_length", "max_length": work.max_length} if old else {"padding": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(work.encoder)
    examples = [
        {"input_ids": row.tolist(), "attention_mask": [1] * len(row), "labels": number % 2}
        for number, row in enumerate(work.rows())
    ]
    marks: list[tuple[float, int]] = []

    class Counting(transformers.Trainer):
        def training_step(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> torch.Tensor:
            if self.state.global_step == warm_up and not marks:
                marks.append((now(), 0))
                self.tokens = torch.zeros((), dtype=torch.int64, device=inputs["attention_mask"].device)
            if marks:
                self.tokens += inputs["attention_mask"].sum()
            return super().training_step(model, inputs, *rest, **more)

    arguments = transformers.TrainingArguments(
        output_dir=str(work.folder / "theirs"),
        per_device_train_batch_size=batch_size,
        max_steps=steps,
        learning_rate=2e-5,
        bf16=gpu and not old,
        dataloader_num_workers=0 if old or work.small else 4,
        save_strategy="no",
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=not gpu,
    )
    trainer = Counting(
        model=work.model(),
        args=arguments,
        train_dataset=examples,
        data_collator=transformers.DataCollatorWithPadding(tokenizer, **padding),
    )
    trainer.train()
    seconds = now() - marks[0][0]
    rate = round(int(trainer.tokens) / seconds)
    settings = {
        "batch_size": batch_size,
        "bf16": arguments.bf16,
        "workers": arguments.dataloader_num_workers,
        **padding,
    }
    return {"tokens per second": rate, "settings": settings}


CONTENDERS: dict[str, Callable[[Work], dict[str, Any]]] = {
    "stoker": stoker,
    "by hand": by_hand,
    "HF Trainer, bf16": lambda work: their_trainer(work, old=False),
    "HF Trainer, old style": lambda work: their_trainer(work, old=True),
    "stoker, no CUDA graphs": lambda work: stoker(work, cuda_graphs=False),
    "stoker, not compiled": lambda work: stoker(work, compile="off"),
}


def run_one(name: str, work: Work, *, seconds: float) -> dict[str, Any]:
    """In a process of its own: no contender finds what another left on the GPU."""
    answer = work.folder / "answer.json"
    answer.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--contender", name, "--work", str(work.folder)]
    command += ["--batch-size", str(work.batch_size), *(["--small"] if work.small else [])]
    log = work.folder / "log.txt"
    try:
        with log.open("w") as file:
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=seconds, cwd=work.folder)
    except subprocess.TimeoutExpired:
        return {"left out": f"not done after {seconds:.0f} s", "output": log.read_text()[-2000:]}
    if not answer.exists():
        return {"left out": "it failed", "output": log.read_text()[-3000:]}
    found: dict[str, Any] = json.loads(answer.read_text())
    warnings = [line for line in log.read_text().splitlines() if "graphs" in line]
    return {**found, **({"warnings": warnings[-3:]} if warnings else {})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--small", action="store_true", help="a tiny model and few texts, to see that it runs")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    parser.add_argument("--seconds", type=float, default=540, help="for all contenders together")
    parser.add_argument("--only", action="append", choices=list(CONTENDERS))
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if args.contender:
        found = CONTENDERS[args.contender](Work(args.work, args.small, args.batch_size))
        if torch.cuda.is_available():
            found["peak memory, GB"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
        (args.work / "answer.json").write_text(json.dumps(found))
        return
    if not (torch.cuda.is_available() or args.small):
        sys.exit("bench/text.py needs a GPU, and torch sees none here. `--small` runs a tiny model on the CPU.")
    compare(args)


def compare(args: argparse.Namespace) -> None:
    began = time.monotonic()
    batch_size = min(args.batch_size, 16) if args.small else args.batch_size
    samples = batch_size * (6 if args.small else 100)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STOKER_HOME"] = os.path.join(folder, "home")
        work = prepare(Path(folder), small=args.small, samples=samples, batch_size=batch_size)
        lengths = work.lengths()
        results: dict[str, Any] = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "texts": {"number": samples, "mean tokens": round(float(lengths.mean()), 1), "longest": int(lengths.max())},
            "contenders": {},
        }
        for name in args.only or CONTENDERS:
            left = args.seconds - (time.monotonic() - began)
            found = run_one(name, work, seconds=left) if left > 20 else {"left out": "no time left"}
            results["contenders"][name] = found
            rate = found.get("tokens per second")
            print(f"{name:28}", f"{rate:>10,} tokens/s" if rate else found, flush=True)
            if found.get("warnings"):
                print("   ", *found["warnings"], sep="\n    ", flush=True)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
