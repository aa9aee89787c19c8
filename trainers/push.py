"""Publishing from a training: what the trainers and the training scripts send to the Hub, and when.

All of it goes through `negation_clip.hub.push`, which chooses and checks the files; see docs/hub.md.
"""

from __future__ import annotations

import copy
import logging
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.trainer_utils import HubStrategy

from negation_clip.embedded import EMBEDDED, embedded_path
from negation_clip.hub import FORMS, Plan, check_repo_id, check_token, is_hub_id, make_repo, push

from .runs import write_json

logger = logging.getLogger(__name__)

# Folder in the output folder with what `push_to_hub` of a trainer sends, laid out as a script's output folder is.
HUB = "hub"
STRATEGIES = (HubStrategy.END, HubStrategy.EVERY_SAVE)


@dataclass
class PushArguments:
    """Where a script without a `Trainer` sends its model; named as in `TrainingArguments`.

    Attributes:
        push_to_hub (`bool`): send the model when it is saved.
        hub_model_id (`str`, *optional*): `owner/name`; needed for a push.
        hub_private_repo (`bool`, *optional*): make a new repository private; the owner's default otherwise.
        hub_revision (`str`, *optional*): branch; `main` by default.
        hub_token (`str`, *optional*): access token; that of `hf auth login` or `HF_TOKEN` by default. It is written
            nowhere.
        hub_licence (`str`, *optional*): identifier of the Hub, such as `"mit"`; that of the embedded model by default.
        hub_base_model (`str`, *optional*): Hub id of the backbone, for the card; by default the one it came from.

    Raises:
        ValueError: a push without `hub_model_id`; see [`check_push`].
    """

    push_to_hub: bool = field(default=False, metadata={"help": "send the model to the Hub when it is saved"})
    hub_model_id: str | None = field(default=None, metadata={"help": "owner/name on the Hub"})
    hub_private_repo: bool | None = field(default=None, metadata={"help": "make a new repository private"})
    hub_revision: str | None = field(default=None, metadata={"help": "branch to push to"})
    hub_token: str | None = field(default=None, metadata={"help": "access token; HF_TOKEN is the better place"})
    hub_licence: str | None = field(default=None, metadata={"help": "licence of the weights, such as mit"})
    hub_base_model: str | None = field(default=None, metadata={"help": "Hub id of the backbone, for the card"})

    def __post_init__(self):
        if self.push_to_hub and not self.hub_model_id:
            raise ValueError("push_to_hub needs hub_model_id, the owner/name to send the model to")
        if self.push_to_hub:
            check_push(self)
            check_repo_id(self.hub_model_id)


def check_push(args) -> None:
    """Refuse arguments of a push that could not be done, without a look at the Hub.

    Args:
        args (`TrainingArguments` or [`PushArguments`]): the fields about the Hub are read.

    Raises:
        ValueError: a `hub_strategy` that would publish checkpoints, which hold pickles; an unknown `hub_form`; what is
            no id of a repository, or no token (which is not shown).
    """
    strategy = HubStrategy(getattr(args, "hub_strategy", HubStrategy.END))
    if strategy not in STRATEGIES:
        raise ValueError(
            f"hub_strategy={strategy.value} would publish checkpoints, which hold pickles and the optimizer's state: "
            f"choose {' or '.join(one.value for one in STRATEGIES)}; a run goes on from checkpoints on its own disk"
        )
    form = getattr(args, "hub_form", None)
    if form not in (None, *FORMS):
        raise ValueError(f"hub_form={form!r}: choose {' or '.join(FORMS)}")
    name = _repo_name(args)
    check_repo_id(name if "/" in name else f"owner/{name}")
    check_token(args.hub_token)


def open_repo(args, model, facts: Mapping | None = None, **given) -> str:
    """Create the repository that a training will push to, after a check that it could; for the main process.

    Args:
        args (`TrainingArguments` or [`PushArguments`]): the fields about the Hub are read.
        model (`PreTrainedModel` or `PeftModel`): what will be trained; its configuration is read.
        facts (`dict`, *optional*): for the card, as `arguments` stand in a `training_log.json`.
        given: replaces what [`push_options`] says, unless it is `None`.

    Returns:
        `str`: `owner/name`.

    Raises:
        ValueError: see [`check_push`]; a card that could not be made, such as one without a licence.
        OSError: refused by the Hub, which may be out of reach.
    """
    from huggingface_hub import HfApi

    from negation_clip.cards import model_card

    check_push(args)
    name, options = _repo_name(args), push_options(args, model, **given)
    check_token(options["token"])
    with tempfile.TemporaryDirectory() as folder:
        # As little of a run as tells whether the card of the whole one could be made.
        _inner(model).config.save_pretrained(Path(folder, "model"))
        Path(folder, "adapter").mkdir()
        write_json(Path(folder, "adapter", "adapter_config.json"), {})
        write_json(Path(folder, "training_log.json"), {"arguments": _facts(model, facts)})
        card = {key: options[key] for key in ("form", "licence", "base_model")}
        try:
            model_card(folder, f"owner/{name.split('/')[-1]}", **card)
        except ValueError as error:
            raise ValueError(
                f"push_to_hub: there could be no card: {error}. The options are called hub_licence and hub_base_model"
            ) from error
    try:
        api = HfApi(token=options["token"], library_name="negation-clip")
        repo_id = make_repo(api, name, options["private"])
        api.auth_check(repo_id, write=True)  # one that is there already may be another's
        return repo_id
    except Exception as error:  # whatever stands between here and the Hub
        if type(error) is ValueError:  # of `make_repo`; those of the client are of kinds of their own
            raise ValueError(f"push_to_hub: {error}") from error
        raise OSError(
            f"push_to_hub: {name} cannot be opened on the Hub: {_line(error)}. Log in by `hf auth login`, or leave "
            "push_to_hub out and send the model later, by `negation-clip push`"
        ) from error


def push_options(args, model=None, **given) -> dict:
    """What arguments say of a push, as `negation_clip.hub.push` takes it.

    Args:
        args (`TrainingArguments` or [`PushArguments`]): the fields about the Hub are read.
        model (`PreTrainedModel` or `PeftModel`, *optional*): tells the backbone, if it came from the Hub.
        given: replaces what the arguments say, unless it is `None`.

    Returns:
        `dict`: `form`, `licence`, `base_model`, `private`, `revision`, `token`.
    """
    start = start_of(model) if model is not None else ""
    options = {
        "form": getattr(args, "hub_form", None),
        "licence": getattr(args, "hub_licence", None),
        "base_model": getattr(args, "hub_base_model", None) or (start if is_hub_id(start) else None),
        "private": args.hub_private_repo,
        "revision": args.hub_revision,
        "token": args.hub_token,
    }
    return options | {name: value for name, value in given.items() if value is not None}


def with_licence(facts: Mapping) -> dict:
    """Options of a training, and beside them as `licence` that of the model which it begins with.

    Args:
        facts (mapping): the options, as `arguments` are to stand in a `training_log.json`. To be given when the
            training begins: see `negation_clip.cards.start_licence`.

    Returns:
        `dict`: what cannot be read is a warning, and the licence is `None` then.
    """
    from negation_clip.cards import start_licence

    if "licence" in facts:
        return dict(facts)
    try:
        return {**facts, "licence": start_licence(facts)}
    except (ValueError, OSError) as error:
        logger.warning("the licence of the model that is trained is not known: %s", _line(error))
        return {**facts, "licence": None}


def send(source: str | Path, repo_id: str, message: str | None = None, **options) -> Plan:
    """`negation_clip.hub.push` of what a training has saved.

    Args:
        source (`str` or `Path`): the folder.
        repo_id (`str`): `owner/name`.
        message (`str`, *optional*): of the commit.
        options: see `negation_clip.hub.push`.

    Returns:
        `Plan`: what went, with `url`.

    Raises:
        OSError: it was not sent, for whatever reason; says which, and the command that sends it later.
    """
    try:
        return push(source, repo_id, message=message, **options)
    except Exception as error:  # whatever it is, the model is on disk and must not be given up
        raise OSError(
            f"the model is saved in {source}, but was not sent to {repo_id}: {_line(error)}. To send it: "
            f"{_command(source, repo_id, options)}"
        ) from error


def _command(source, repo_id: str, options: Mapping) -> str:
    words = ["negation-clip", "push", str(source), repo_id]
    words += ["--adapter"] if options.get("form") == "adapter" else []
    words += ["--private"] if options.get("private") else []
    for name in ("revision", "licence", "base_model"):
        words += [f"--{name.replace('_', '-')}", options[name]] if options.get(name) else []
    for path in options.get("results") or ():
        words += ["--results", str(path)]
    return shlex.join(words)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _repo_name(args) -> str:
    return args.hub_model_id or Path(args.output_dir).absolute().name


def _inner(model):
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def start_of(model) -> str:
    """What a model was loaded from.

    Args:
        model (`PreTrainedModel` or `PeftModel`): one that `from_backbone` has made has its backbone's.

    Returns:
        `str`: name of an embedded model, folder or Hub id; empty if it was loaded from nothing.
    """
    inner = _inner(model)
    start = getattr(inner, "name_or_path", "") or getattr(getattr(inner, "backbone", None), "name_or_path", "")
    return {str(embedded_path(name)): name for name in EMBEDDED}.get(start, start)


def _facts(model, facts: Mapping | None) -> dict:
    """What the card is to say of the training: what the script said, and what the model tells by itself."""
    config = _inner(model).config
    start = start_of(model)
    # A folder may hold a card, whose licence what is trained inherits.
    told = {"model": start if start in EMBEDDED or (start and Path(start).is_dir()) else None}
    told |= {name: getattr(config, name, None) for name in ("similarity", "curvature", "learn_curvature")}
    told = {name: value for name, value in told.items() if value is not None}
    facts = {name: value for name, value in (facts or {}).items() if value is not None or name == "licence"}
    return with_licence({**told, **facts})


class HubPush:
    """The part of a `Trainer` that publishes, for a class that stands before `Trainer` among its bases.

    Only what `negation_clip.hub.push` chooses is sent: weights, configuration, processor, tokenizer, code, card and
    figures; no checkpoint, no `training_args.bin`. `hub_strategy="every_save"` also sends the model whenever a
    checkpoint is saved, in the background; at the end of `train` the Hub then has the final model. If that fails, the
    training goes on, and a warning says why. `hub_token` is kept out of the files that are saved. trackio makes a
    Space of the logs only if `trackio_static_space_id` names one.

    Attributes:
        facts (`dict`, *optional*): what the card is to say of the training; the options of a script.
    """

    facts: Mapping | None = None
    # Whether `whole_model` gathers a model that is cut up.
    _gathers_model = False
    _pushing: Future | None = None
    # Steps of the last model that was to be sent beside the training, and of the last one that was sent.
    _begun_step: int | None = None
    _sent_step: int | None = None

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Create the repository, so that what would keep the model from it is known before the training.

        Args:
            token (`str`, *optional*): access token; `args.hub_token` by default.
            private (`bool`, *optional*): make a new one private; `args.hub_private_repo` by default.

        Raises:
            ValueError: see [`open_repo`]; parameters that are shared out over processes. In all processes.
            OSError: refused by the Hub, which may be out of reach. In all processes.
        """
        self._open_repo(token=token, private=private)

    def _open_repo(self, **given) -> None:
        found: list = [None, None]
        if self.is_world_process_zero():
            try:
                sharded = self.is_fsdp_enabled or (self.is_deepspeed_enabled and is_deepspeed_zero3_enabled())
                if sharded and not self._gathers_model:
                    raise ValueError("push_to_hub needs a whole model in the main process, which FSDP and ZeRO-3 lack")
                if sharded and self.args.hub_strategy != HubStrategy.END:
                    raise ValueError(
                        f"hub_strategy={HubStrategy(self.args.hub_strategy).value}: with FSDP and ZeRO-3 no process "
                        "has the whole model during the training; take hub_strategy=end"
                    )
                self.facts = _facts(self.model, self.facts)  # while what is relative can be found
                found[0] = open_repo(self.args, self.model, self.facts, **given)
            except (ValueError, OSError) as error:
                found[1] = error
        repo_id, error = broadcast_object_list(found)
        if error is not None:
            raise error
        self.hub_model_id = repo_id

    def create_model_card(
        self,
        language: str | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
        form: str | None = None,
        results=(),
    ) -> None:
        """Write the card that [`push_to_hub`] would send to `README.md` in the output folder.

        All processes must call it; the main one writes.

        Args:
            license, finetuned_from (`str`, *optional*), form (`str`, *optional*), results (sequence of `str` or
                `Path`): see [`push_to_hub`].
            language, tags, model_name, tasks, dataset_tags, dataset, dataset_args: must be left out: the card says
                what the configuration, the training log and result files say.

        Raises:
            ValueError: one of the latter is given; a card that cannot be made.
            OSError: the model cannot be written.
        """
        _refuse_card_options(
            language=language,
            tags=tags,
            model_name=model_name,
            tasks=tasks,
            dataset_tags=dataset_tags,
            dataset=dataset,
            dataset_args=dataset_args,
        )
        model = self.whole_model()
        if not self.is_world_process_zero():
            return
        from negation_clip.cards import model_card

        self._finish_current_push()
        options = push_options(self.args, self.model, form=form, licence=license, base_model=finetuned_from)
        card = {key: options[key] for key in ("form", "licence", "base_model")}
        name = self.hub_model_id or _repo_name(self.args)
        text = str(
            model_card(self._write_run(model), name if "/" in name else f"owner/{name}", results=results, **card)
        )
        Path(self.args.output_dir, "README.md").write_text(text, encoding="utf-8")

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        form: str | None = None,
        license: str | None = None,
        finetuned_from: str | None = None,
        results=(),
        **kwargs,
    ):
        """Save the model as it is now into `hub/` of the output folder, and send it, as one commit.

        All processes must call it; the main one sends. What LoRA has added is merged into the model, in a copy, unless
        `form` or `args.hub_form` is `"adapter"`.

        Args:
            commit_message (`str`, *optional*): of the commit.
            blocking (`bool`): wait until it is sent.
            token, revision (`str`, *optional*), private (`bool`, *optional*): `hub_token`, `hub_revision` (a branch)
                and `hub_private_repo` of the arguments by default.
            form (`str`, *optional*): `"merged"` or `"adapter"`; `args.hub_form`, and then merged, by default.
            license (`str`, *optional*): licence of the weights as the Hub calls it, such as `"mit"`;
                `args.hub_licence` by default, and that of the embedded model where it began with one.
            finetuned_from (`str`, *optional*): Hub id of the backbone; `args.hub_base_model` by default, and then the
                one that the model was loaded from.
            results (sequence of `str` or `Path`): `results.json` files of `negation-clip evaluate`, for the card. They
                must be about this very model, which an earlier call has saved in `hub/model`.
            kwargs: none; what `Trainer.create_model_card` takes beside these has no place in the card.

        Returns:
            `negation_clip.hub.Plan`: what went, with `url`; without `blocking` a `Future` of it. `None` in other
            processes than the main one.

        Raises:
            ValueError: an argument that has no place in the card; a repository that cannot be opened, see
                [`init_hf_repo`].
            OSError: it was not sent; the message says why, where the model is, and which command sends it.
        """
        _refuse_card_options(**kwargs)
        given = {"form": form, "licence": license, "base_model": finetuned_from, "private": private, "token": token}
        self._tell_callbacks()
        if self.hub_model_id is None:
            self._open_repo(**given)
        model = self.whole_model()
        if not self.is_world_process_zero():
            return None
        self._finish_current_push()
        folder, repo_id = self._write_run(model), self.hub_model_id
        options = push_options(self.args, self.model, revision=revision, **given)
        if blocking:
            plan = send(folder, repo_id, commit_message, results=results, **options)
            self._sent_step = self.state.global_step
            return plan
        return self._send_beside(folder, commit_message, results=results, **options)

    def push_folder(self, folder: str | Path) -> Plan | None:
        """Send what a script has saved, at its end; prints the address.

        Args:
            folder (`str` or `Path`): see `negation_clip.hub.find_model`.

        Returns:
            `negation_clip.hub.Plan`; `None` without `args.push_to_hub`, and in other processes than the main one.

        Raises:
            OSError: it was not sent; the message says why, and which command sends it.
        """
        if not (self.args.push_to_hub and self.is_world_process_zero()):
            return None
        self._finish_current_push()
        # The folder has the same, and plots.
        shutil.rmtree(Path(self.args.output_dir, HUB), ignore_errors=True)
        plan = send(folder, self.hub_model_id, "End of training", **push_options(self.args, self.model))
        print(f"sent: {plan.url}", flush=True)
        return plan

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Send the model beside the training. Of the checkpoint itself nothing goes."""
        if not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        if self._pushing is not None and not self._pushing.done() and not self.args.hub_always_push:
            logger.info("the last push is not at its end: the model of step %d is not sent", self.state.global_step)
            return
        self._tell_callbacks()
        self._finish_current_push()
        self._begun_step = self.state.global_step
        try:
            folder = self._write_run(self.model)
        except OSError as error:
            logger.warning("%s; the training goes on", error)
            return
        message = f"Training in progress, step {self._begun_step}"
        self._send_beside(folder, message, **push_options(self.args, self.model))

    def _tell_callbacks(self) -> None:
        if self.args.trackio_static_space_id is None:
            # By default that of trackio would publish the logs as a Space of its own.
            self.args.trackio_static_space_id = False
        self.callback_handler.on_push_begin(self.args, self.state, self.control)

    def _send_beside(self, folder: Path, message: str | None, **options) -> Future:
        def work(step: int) -> Plan:
            try:
                plan = send(folder, self.hub_model_id, message, **options)
            except OSError as error:
                logger.warning("%s", error)
                raise
            self._sent_step = step
            return plan

        executor = ThreadPoolExecutor(1, thread_name_prefix="push")
        self._pushing = executor.submit(work, self.state.global_step)
        executor.shutdown(wait=False)
        return self._pushing

    def _finish_current_push(self) -> None:
        """Wait for the push beside the training, of which a failure has been reported."""
        if self._pushing is not None:
            wait([self._pushing])

    def _push_final(self) -> None:
        """At the end of `train`: see to it that the Hub has the final model, if it was given earlier ones."""
        self._finish_current_push()
        if self._begun_step is None or not self.is_world_process_zero():
            return
        if self._sent_step != self.state.global_step or self.args.load_best_model_at_end:
            try:
                self.push_to_hub()
            except OSError as error:  # the trained model is in memory yet, and the caller's
                logger.warning("%s", error)

    def whole_model(self):
        """The model as it is now."""
        return self.model

    def _merged(self, model):
        """A model to be published, with what LoRA has added merged into it; the one given stays as it is."""
        return copy.deepcopy(model).merge_and_unload() if hasattr(model, "merge_and_unload") else model

    def _write_run(self, model) -> Path:
        """Write `hub/`, so that there is never half of it."""
        folder = Path(self.args.output_dir, HUB)
        aside = folder.with_name(f"_{HUB}")
        try:
            shutil.rmtree(aside, ignore_errors=True)
            self._merged(model).save_pretrained(aside / "model")
            if self.processing_class is not None:
                self.processing_class.save_pretrained(aside / "model")
            if hasattr(model, "merge_and_unload"):
                model.save_pretrained(aside / "adapter")
            log = {"steps": self.state.global_step, "log": self.state.log_history}
            write_json(aside / "training_log.json", {"arguments": _facts(self.model, self.facts), **log})
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
        except (OSError, SafetensorError, RuntimeError) as error:  # the last may be memory that the copy lacks
            shutil.rmtree(aside, ignore_errors=True)
            raise OSError(f"the model to be pushed cannot be written to {folder}: {error}") from error
        return folder

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        # `training_args.bin` holds the arguments as they are.
        token, self.args.hub_token = self.args.hub_token, None
        try:
            super()._save(output_dir, state_dict)
        finally:
            self.args.hub_token = token


def _refuse_card_options(**options) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)}: the card says what the configuration, the training log and result files say; what "
            "can be given are license, finetuned_from, form and results"
        )
