"""Image search that hears "no". The index and all logic are those of `negation_clip.search`; this is the page."""

import os
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

try:  # on ZeroGPU it must come before anything that imports torch
    import spaces
except ImportError:
    spaces = None

# A folder of this app alone, so that all in it can be deleted: what is uploaded goes there before a function gets it.
UPLOADS = tempfile.TemporaryDirectory(prefix="search-", dir=os.environ.get("GRADIO_TEMP_DIR"))
os.environ["GRADIO_TEMP_DIR"] = UPLOADS.name

import gradio as gr  # noqa: E402
import torch  # noqa: E402
from gradio import route_utils  # noqa: E402

from negation_clip.search import Gallery, Reading, SearchEngine, edited, page, read  # noqa: E402
from negation_clip.search.engine import MAX_CAPTION, MAX_CAPTIONS  # noqa: E402
from negation_clip.search.gallery import MAX_BYTES, MAX_PICTURES, delete_older  # noqa: E402
from negation_clip.search.page import CSS  # noqa: E402

FOLDER = Path(os.environ.get("NEGATION_CLIP_INDEX") or Path(__file__).with_name("index"))
# Here and not in a call: on ZeroGPU models are moved once, and a call gets a process of its own that has them.
ENGINE = SearchEngine.from_folder(FOLDER, device="cuda" if torch.cuda.is_available() else "cpu")
EXAMPLES = ENGINE.info["examples"]
ALPHA = ENGINE.alpha


class Upload(route_utils.GradioUploadFile):
    """A file that is uploaded, in a folder of its own.

    Gradio names the folder by what is in the file, so that all who upload the same picture share one file, and the
    first to have it read and deleted would take it from the others.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.sha.update(os.urandom(32))


route_utils.GradioUploadFile = Upload


def on_gpu(function):
    """On ZeroGPU, a function that uses the models; elsewhere, the function itself."""
    return spaces.GPU(function) if spaces else function


def over(gallery: Gallery | None) -> SearchEngine:
    """The engine over somebody's own pictures, or over those of the index."""
    return ENGINE if gallery is None else ENGINE.over(gallery)


@on_gpu
def find(reading: Reading, models: list[str], alpha: float | None, gallery: Gallery | None):
    """An `Answer`; see `SearchEngine.search`."""
    return over(gallery).search(reading, models, k=9, alpha=alpha)


@on_gpu
def choose(captions: list[str], row: int, alpha: float | None, gallery: Gallery | None):
    """Scores of captions; see `SearchEngine.choose`."""
    return over(gallery).choose(captions, row, alpha=alpha)


@on_gpu
def embed(files: list[str]) -> Gallery:
    """The gallery of somebody's own pictures; see `SearchEngine.with_pictures`."""
    return ENGINE.with_pictures(files).gallery


def results(reading: Reading, models: list[str], alpha: float | None, gallery: Gallery | None) -> str:
    """HTML of what was found."""
    return page.answer(find(reading, models, alpha, gallery), ENGINE.gallery if gallery is None else gallery)


def boxes(reading: Reading) -> tuple[str, str]:
    """How a reading stands in its two boxes."""
    return reading.present, ", ".join(reading.absent)


def search(query: str, without: str, models: list[str], alpha: float | None, gallery: Gallery | None):
    """Reads a query and searches: what it wants, what not, the results, and the reading.

    Where nothing could be read the boxes are emptied, since what stood in them was of another query.
    """
    try:
        reading = read(query, without)
    except ValueError as error:
        return "", "", page.alert(str(error)), None
    try:
        return *boxes(reading), results(reading, models, alpha, gallery), reading
    except ValueError as error:
        return *boxes(reading), page.alert(str(error)), reading


def search_again(
    present: str, absent: str, models: list[str], alpha: float | None, gallery: Gallery | None, last: Reading | None
):
    """Searches with what stands in the two boxes: the last reading if it is still that, and what was typed if not."""
    try:
        unchanged = last is not None and boxes(last) == (present, absent)
        return results(last if unchanged else edited(present, absent), models, alpha, gallery)
    except ValueError as error:
        return page.alert(str(error))


def search_if_read(present: str, absent: str, *others):
    """The same after another change, if there is something to search for."""
    if not (present.strip() or absent.strip()):
        return gr.skip()
    return search_again(present, absent, *others)


def sweep() -> None:
    """Deletes uploads that no function was given, since they were refused or broken off, and Gradio's empty files."""
    while True:
        time.sleep(10)
        delete_older(UPLOADS.name, 300)


def take(files: list[str] | str) -> Gallery:
    """Embeds what was uploaded, and deletes Gradio's copies of it whatever comes of that."""
    files = [files] if isinstance(files, str) else files or []
    try:
        return embed(files)
    except FileNotFoundError:  # the sweep, after a very long wait
        raise ValueError("an uploaded file was gone before it was read: upload it again") from None
    finally:
        for file in map(Path, files):
            file.unlink(missing_ok=True)
            with suppress(OSError):  # another file of this upload that is still to go
                file.parent.rmdir()


def bring(files: list[str], before: Gallery | None):
    """Own pictures to search in; if they are refused, those before them stay in use, and are shown to be."""
    try:
        gallery = take(files)
        return gallery, page.searched(gallery)
    except ValueError as error:
        return gr.skip(), page.alert(str(error)) + page.searched(over(before).gallery)


def forget():
    """Back to the pictures of the index."""
    return None, page.note("Your pictures are gone.") + page.searched(ENGINE.gallery)


def ask_about(file: str):
    """An own picture for the multiple choice."""
    try:
        gallery = take(file)
        return gallery, 0, page.one_picture(gallery), ""
    except ValueError as error:
        return gr.skip(), gr.skip(), gr.skip(), page.alert(str(error))


def another(row: int, gallery: Gallery | None):
    """The next picture of the index for the multiple choice."""
    row = 0 if gallery is not None else (row + 1) % len(ENGINE.gallery)
    return None, row, page.one_picture(ENGINE.gallery, row), ""


def compare(captions: str, row: int, alpha: float | None, gallery: Gallery | None) -> str:
    """HTML of the multiple choice."""
    lines = [line.strip() for line in captions.splitlines() if line.strip()]
    try:
        return page.choices(choose(lines, row, alpha, gallery), lines)
    except ValueError as error:
        return page.alert(str(error))


def first_question() -> tuple[int, str]:
    """A picture and captions to begin with: of the first example, if there is one."""
    if not EXAMPLES:
        return 0, ""
    reading = read(EXAMPLES[0])
    hits = ENGINE.search(reading, ENGINE.models[:1], k=1).found[0].hits
    captions, other = [reading.sentence], EXAMPLES[0].partition(" without ")[2]
    if reading.absent and reading.things:
        captions += [reading.affirmed, f"no {reading.things[0]}"]
    if other:
        captions.insert(2, f"{read(other).present} without {reading.present}")
    return hits[0].row, "\n".join(captions)


def controls() -> gr.Slider:
    """The slider of α, which is not there if no model is steered. Its number may be cleared, for the model's own α."""
    slider = gr.Slider(
        0,
        max(0.6, ALPHA or 0),
        value=ALPHA or 0,
        step=0.05,
        label="α: how strongly the steered model is steered",
        info="0 is the model as it was.",
        visible=ALPHA is not None,
        min_width=300,
    )
    # One that is not shown stands for nothing: a model may have an α for each layer, or each model its own.
    slider.preprocess = partial(
        lambda read, value: None if value is None or ALPHA is None else read(value), slider.preprocess
    )
    return slider


KINDS = [".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"]
LIMITS = f"up to {MAX_PICTURES}, {MAX_BYTES // 2**20} MB each"
PRIVACY = (
    "They are searched for you alone, in this session. Nothing is kept: uploaded files are deleted as soon as they "
    "are read, and small copies stay in memory until the page is closed or an hour has passed."
)

with gr.Blocks(title="Search that hears “no”", analytics_enabled=False) as demo:
    gr.Markdown(f"# Search that hears “no”\n{page.intro(ENGINE.info)}")
    mine, last = gr.State(None, time_to_live=3600), gr.State(None)
    with gr.Tabs():
        with gr.Tab("Search"):
            with gr.Row():
                query = gr.Textbox(label="Search for", placeholder="a dog without a cat", scale=3, min_width=260)
                without = gr.Textbox(label="Without (optional)", placeholder="cat, bird", scale=2, min_width=260)
            with gr.Row(elem_classes="nc-examples"):
                go = gr.Button("Search", variant="primary")
                examples = [gr.Button(text, size="sm", min_width=130) for text in EXAMPLES]
            with gr.Row():
                present = gr.Textbox(
                    label="Read as wanted", info="Change it if it was misread.", scale=3, min_width=260
                )
                absent = gr.Textbox(
                    label="Read as not wanted", info="Things, with commas between.", scale=2, min_width=260
                )
                again = gr.Button("Search with this reading", scale=1)
            with gr.Row():
                models = gr.CheckboxGroup(
                    ENGINE.models, value=ENGINE.models, label="Models, side by side", min_width=300
                )
                alpha = controls()
            with gr.Accordion("Search in your own pictures", open=False):
                gr.Markdown(PRIVACY)
                with gr.Row():
                    upload = gr.UploadButton(f"Choose pictures ({LIMITS})", file_count="multiple", file_types=KINDS)
                    drop = gr.Button("Back to the demo's pictures")
                brought = gr.HTML(page.searched(ENGINE.gallery), elem_id="searched")
            found = gr.HTML(elem_id="results")
        with gr.Tab("Multiple choice"):
            start, captions_shown = first_question()
            gr.Markdown("Which caption fits the picture best? Each model answers.")
            own, row = gr.State(None, time_to_live=3600), gr.State(start)
            with gr.Row():
                with gr.Column(scale=1, min_width=240):
                    picture = gr.HTML(page.one_picture(ENGINE.gallery, start), elem_id="picture")
                    with gr.Row():
                        ask_upload = gr.UploadButton("Choose a picture", file_types=KINDS)
                        next_one = gr.Button("Another picture")
                with gr.Column(scale=2, min_width=300):
                    captions = gr.Textbox(
                        captions_shown,
                        label=f"Captions, one a line (2 to {MAX_CAPTIONS})",
                        lines=6,
                        info=f"At most {MAX_CAPTION} characters each. Shift and Enter together compare, too.",
                    )
                    mc_alpha = controls()
                    ask = gr.Button("Compare", variant="primary")
            chosen = gr.HTML(elem_id="choices")
        with gr.Tab("About"):
            gr.Markdown(page.about(ENGINE))

    reading_in = [present, absent, models, alpha, mine, last]
    query_in, query_out = [query, without, models, alpha, mine], [present, absent, found, last]
    last_one = {"trigger_mode": "always_last"}  # what is asked for while another search is under way is not dropped
    gr.on([go.click, query.submit, without.submit], search, query_in, query_out, api_name="search", **last_one)
    again_by = [again.click, present.submit, absent.submit]
    gr.on(again_by, search_again, reading_in, found, api_name="search_again", **last_one)
    private = {"api_visibility": "private"}
    # a new text is not read yet; what stands in the boxes would be of the old one
    gr.on([query.change, without.change], None, None, [present, absent], js="() => ['', '']", **private)
    for button in examples:
        button.click(partial(lambda text: (text, ""), button.value), None, [query, without], **private).then(
            search, query_in, query_out, **private
        )
    gr.on([models.change, alpha.change], search_if_read, reading_in, found, **last_one, **private)
    upload.upload(bring, [upload, mine], [mine, brought], **private).then(search_if_read, reading_in, found, **private)
    drop.click(forget, None, [mine, brought], **private).then(search_if_read, reading_in, found, **private)
    question_in = [captions, row, mc_alpha, own]
    ask_upload.upload(ask_about, ask_upload, [own, row, picture, chosen], **private)
    next_one.click(another, [row, own], [own, row, picture, chosen], **private)
    gr.on([ask.click, captions.submit], compare, question_in, chosen, api_name="compare", **last_one)
    mc_alpha.change(compare, question_in, chosen, **last_one, **private)

threading.Thread(target=sweep, daemon=True).start()
demo.queue(default_concurrency_limit=4)

if __name__ == "__main__":
    theme = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    # Gradio's own grey is too pale to be read
    darker = {"block_info_text_color": "*neutral_600", "body_text_color_subdued": "*neutral_600"}
    darker |= {f"{name}_dark": "*neutral_300" for name in darker}
    demo.launch(
        theme=theme.set(**darker),
        css=CSS,
        max_file_size=MAX_BYTES,
        ssr_mode=False,
        footer_links=[],
    )
