"""Train the small CLIP that is shipped with the package, from scratch, on emoji scenes.

    python trainers/pretrain_clip.py --config recipes/pretrain_clip.yaml
    python trainers/pretrain_clip.py --config recipes/pretrain_clip_stage2.yaml

The contrastive loss of CLIP on mostly affirmative captions: the model becomes good at what CLIP is good at (naming
what is in a picture, finding a picture by its caption) and bad at what CLIP is bad at (saying what is not there).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from negation_clip.model_place import model_place
from negation_clip.trainers.runs import run_script


@dataclass
class PretrainArguments:
    """What is trained, and on how much.

    Attributes:
        scenes (`int`): size of the pool of training scenes.
        augment (`float`): share of scenes drawn with varied sprites.
        negations (`float`): share of captions with a negation, in [0, 1].
        noise (`float`): share of those that deny something the picture shows.
        detail (`float`): probability that an affirmative caption tells the background or the colour of a tile. The
            less it tells, the more the loss depends on recognising objects.
        whole (`float`): share of affirmative captions sure to name every object; the others name a part, or all.
        stop_at (`int`, *optional*): step at which to end, although the learning rate's schedule goes on to
            `max_steps`.
        init_from (`str`, *optional*): folder of an earlier stage, whose weights and tokenizer are taken over.
        world_seed (`int`): seed of the world (the scenes themselves).
        vision_width, vision_layers, text_width, text_layers, projection_dim (`int`): size of the model; widths are
            multiples of 32, the size of an attention head.
        vocab_size (`int`): size of the BPE vocabulary.
        pixels, patch (`int`): side of a picture and of a patch.
        context (`int`): longest caption in tokens.
        tokenizer_captions (`int`): number of captions that the tokenizer is fitted on.
        validation_scenes (`int`): size of the gallery in which captions are searched now and then.
    """

    scenes: int = field(default=48_000, metadata={"help": "size of the pool of training scenes"})
    augment: float = field(default=0.75, metadata={"help": "share of scenes drawn with varied sprites"})
    negations: float = field(default=0.05, metadata={"help": "share of captions with a negation"})
    noise: float = field(default=0.2, metadata={"help": "share of those that deny what the picture shows"})
    detail: float = field(default=0.5, metadata={"help": "probability of each detail of an affirmative caption"})
    stop_at: int | None = field(default=None, metadata={"help": "step at which to end before max_steps"})
    whole: float = field(default=0.6, metadata={"help": "share of affirmative captions sure to name every object"})
    init_from: str | None = field(default=None, metadata={"help": "folder of an earlier stage to go on from"})
    world_seed: int = field(default=0, metadata={"help": "seed of the world"})
    vision_width: int = field(default=160, metadata={"help": "hidden size of the vision tower"})
    vision_layers: int = field(default=4, metadata={"help": "layers of the vision tower"})
    text_width: int = field(default=128, metadata={"help": "hidden size of the text tower"})
    text_layers: int = field(default=3, metadata={"help": "layers of the text tower"})
    projection_dim: int = field(default=192, metadata={"help": "size of the shared space"})
    vocab_size: int = field(default=1600, metadata={"help": "size of the BPE vocabulary"})
    pixels: int = field(default=64, metadata={"help": "side of a picture"})
    patch: int = field(default=8, metadata={"help": "side of a patch"})
    context: int = field(default=64, metadata={"help": "longest caption, in tokens"})
    tokenizer_captions: int = field(default=60_000, metadata={"help": "captions that the tokenizer is fitted on"})
    validation_scenes: int = field(default=1000, metadata={"help": "pictures to search during training"})


class PretrainingScenes:
    """Pictures of a fixed pool, each time with a freshly drawn caption.

    Item `i` is scene `i % scenes`, its caption drawn from a stream of its own, so that a run can be resumed anywhere.

    Args:
        arguments (`PretrainArguments`): the pool.
        length (`int`): number of (picture, caption) pairs.
        cache (`Path`): folder that keeps the drawn pool between runs.
        progress (`bool`): show a progress bar while drawing.
    """

    def __init__(self, arguments: PretrainArguments, length: int, cache: Path, progress: bool = True):
        import numpy as np
        from tqdm.auto import tqdm

        from negation_clip.data.scenes import make_scene, render_array, scene_rng

        self.arguments, self.length = arguments, length
        self.pool = [make_scene("train", i, arguments.world_seed) for i in range(arguments.scenes)]
        a = arguments
        path = Path(cache) / f"pool-{a.world_seed}-{a.scenes}-{a.pixels}-{a.augment}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = np.empty((a.scenes, a.pixels, a.pixels, 3), dtype=np.uint8)
            for i, scene in enumerate(tqdm(self.pool, desc="drawing", disable=None if progress else True)):
                rng = scene_rng("train", a.world_seed, i, purpose=3)
                drawn[i] = render_array(scene, a.pixels, rng if rng.random() < a.augment else None)
            partial = path.with_suffix(".partial.npy")
            np.save(partial, drawn)
            partial.replace(path)
        self.pictures = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict:
        from negation_clip.data.captions import pretraining_caption
        from negation_clip.data.scenes import scene_rng

        a, scene = self.arguments, i % self.arguments.scenes
        rng = scene_rng("train", a.world_seed, i, purpose=4)
        caption = pretraining_caption(self.pool[scene], rng, a.negations, a.noise, a.detail, a.whole)
        return {"picture": self.pictures[scene], "caption": caption.text}


def train_tokenizer(arguments: PretrainArguments):
    """A byte-level BPE tokenizer of CLIP's kind, fitted on captions of every form.

    Returns:
        `transformers.CLIPTokenizer`: its start and end tokens have the two largest ids, as in OpenAI's vocabulary.
    """
    from tokenizers import pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    from negation_clip.data.captions import pretraining_caption
    from negation_clip.data.scenes import make_scene, scene_rng

    def texts():
        for i in range(arguments.tokenizer_captions):
            rng = scene_rng("train", arguments.world_seed, i, purpose=5)
            yield pretraining_caption(make_scene("train", i, arguments.world_seed), rng, negations=0.5).text

    backend = CLIPTokenizer().backend_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=arguments.vocab_size - 2 - len(alphabet),
        initial_alphabet=alphabet,
        end_of_word_suffix="</w>",
        show_progress=False,
        special_tokens=[],
    )
    backend.train_from_iterator(texts(), trainer=trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    # every byte also as the last of a word, so that no string is unknown
    tokens = sorted(alphabet) + [f"{byte}</w>" for byte in sorted(alphabet)]
    tokens += [token for token in ("".join(pair) for pair in merges) if token not in set(tokens)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=arguments.context)


def build_model(arguments: PretrainArguments, tokenizer):
    """A `CLIPModel` of the size asked for, with random weights and the tokenizer's own end token.

    Returns:
        `transformers.CLIPModel`
    """
    from transformers import CLIPConfig, CLIPModel

    a = arguments

    def tower(width: int, layers: int) -> dict:
        return {
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": width // 32,
            "projection_dim": a.projection_dim,
        }

    text = tower(a.text_width, a.text_layers) | {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": a.context,
        # the model pools at this token; with another id it would pool at the wrong place
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = tower(a.vision_width, a.vision_layers) | {"image_size": a.pixels, "patch_size": a.patch}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=a.projection_dim))


def build_processor(arguments: PretrainArguments, tokenizer):
    """The processor that belongs to the model: pictures resized by their shorter side and cropped, pixels in [-1, 1].

    Returns:
        `transformers.CLIPProcessor`
    """
    from transformers import CLIPProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    side = arguments.pixels
    images = CLIPImageProcessorPil(
        size={"shortest_edge": side},
        crop_size={"height": side, "width": side},
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )
    return CLIPProcessor(image_processor=images, tokenizer=tokenizer)


def make_collator(tokenizer):
    """Pictures and captions to tensors: the same values as the processor's, for whole batches at once."""

    def collate(examples: list[dict]) -> dict:
        import numpy as np
        import torch

        pictures = torch.from_numpy(np.stack([example["picture"] for example in examples]))
        tokens = tokenizer([e["caption"] for e in examples], padding=True, truncation=True, return_tensors="pt")
        pixels = (pictures.permute(0, 3, 1, 2).float() / 127.5 - 1).contiguous()
        return {"pixel_values": pixels, "return_loss": True, **tokens}

    return collate


def make_callback(arguments: PretrainArguments, tokenizer, every: int):
    """Clamp the logit scale after each step, and now and then print text-to-image R@1 on validation scenes."""
    import math

    import numpy as np
    import torch
    from transformers import TrainerCallback

    from negation_clip.data.captions import affirmative
    from negation_clip.data.scenes import iterate_scenes, render_array

    class PretrainCallback(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            with torch.no_grad():
                model.logit_scale.clamp_(max=math.log(100))
            if arguments.stop_at is not None and state.global_step >= arguments.stop_at:
                control.should_training_stop = True
            if state.is_world_process_zero and (state.global_step % every == 0 or state.global_step == args.max_steps):
                state.log_history.append({"step": state.global_step, "validation_t2i_r1": self.recall(model)})
                print(state.log_history[-1], flush=True)

        @torch.no_grad()
        def recall(self, model) -> float:
            model.eval()
            scenes = list(iterate_scenes("validation", arguments.validation_scenes, arguments.world_seed))
            examples = [
                {"picture": render_array(s, arguments.pixels), "caption": affirmative(s, rng, detail=0.9).text}
                for s, rng in scenes
            ]
            batch = make_collator(tokenizer)(examples)
            batch = {name: v.to(model.device) if torch.is_tensor(v) else v for name, v in batch.items()}
            scores = model(**batch).logits_per_text.cpu().numpy()
            model.train()
            return float(np.mean(scores.argmax(1) == np.arange(len(scores))))

    return PretrainCallback()


def main(arguments: PretrainArguments, training_arguments) -> None:
    """Train, and save model, processor and log to `training_arguments.output_dir`.

    Args:
        arguments (`PretrainArguments`): what is trained.
        training_arguments (`transformers.TrainingArguments`): how; `max_steps` is needed.

    Raises:
        ValueError: without `max_steps`.
        FileNotFoundError: `init_from` is no model.
    """
    from transformers import CLIPModel, CLIPTokenizer, Trainer, set_seed

    from negation_clip.trainers.contrastive import hold_process_group
    from negation_clip.trainers.push import HubPush, check_push

    class PretrainTrainer(HubPush, Trainer):
        facts = card_facts(arguments)

    args = training_arguments
    if args.max_steps < 1:
        raise ValueError(f"max_steps must be at least 1: captions are drawn anew at each step, got {args.max_steps}")
    if args.push_to_hub:
        check_push(args)
    args.remove_unused_columns = False  # the collator reads the pictures
    set_seed(args.seed)
    out = Path(args.output_dir)
    if arguments.init_from:
        place = model_place(arguments.init_from, "init_from")
        tokenizer, model = CLIPTokenizer.from_pretrained(place), CLIPModel.from_pretrained(place)
    else:
        tokenizer = train_tokenizer(arguments)
        model = build_model(arguments, tokenizer)
    pairs = args.max_steps * args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    dataset = PretrainingScenes(arguments, pairs, out / "_cache", progress=not args.disable_tqdm)
    hold_process_group()
    trainer = PretrainTrainer(
        model=model,
        args=args,
        processing_class=build_processor(arguments, tokenizer),
        train_dataset=dataset,
        data_collator=make_collator(tokenizer),
        callbacks=[make_callback(arguments, tokenizer, every=max(1, args.max_steps // 10))],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if trainer.is_world_process_zero():
        model.save_pretrained(out / "model")
        build_processor(arguments, tokenizer).save_pretrained(out / "model")
        log = {"arguments": trainer.facts, "steps": trainer.state.global_step, "log": trainer.state.log_history}
        (out / "model" / "training_log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    trainer.push_folder(out / "model")


def card_facts(arguments: PretrainArguments) -> dict:
    """The options, the licence, and `data`, where the model is known to have seen nothing but the embedded scenes."""
    from negation_clip.hub import read_object
    from negation_clip.trainers.push import with_licence

    earlier = None
    if arguments.init_from:
        log = Path(arguments.init_from, "training_log.json")
        try:
            earlier = read_object(log).get("arguments") if log.is_file() else None
        except (ValueError, OSError):  # of which `with_licence` warns
            pass
    scenes = not arguments.init_from or (isinstance(earlier, dict) and earlier.get("data") == "scenes")
    return with_licence(vars(arguments) | ({"data": "scenes"} if scenes else {}))


def parse(argv: list[str] | None = None):
    """Arguments from `--config file.yaml` and the command line, which wins."""
    from transformers import TrainingArguments

    from negation_clip.trainers.arguments import parse_arguments

    return parse_arguments((PretrainArguments, TrainingArguments), argv, description=__doc__)


if __name__ == "__main__":
    run_script(parse, main)
