"""Image search that hears "no". The index and all logic are those of `negation_clip.search`; this is the page."""

import os
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
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
# Seconds for which own pictures stay in memory.
KEPT = 3600
GONE = (
    "Your pictures are gone: they are kept for an hour at most, and no longer than this server runs. Choose them "
    "again, or go on with the demo's pictures."
)


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


def search(query, without, present, absent, models, as_saved, alpha, gallery, owns, last, event: gr.EventData):
    """Searches after whatever has happened in the page, with what its boxes and controls hold.

    All that leads to a search comes here, since of one function's calls the last is the one whose result is shown. A
    query that was sent off is read; so is one of which no reading stands in the two boxes. Otherwise what stands in
    these is searched: the last reading if it is still that, and what was typed if not.

    Returns:
        The query in its two boxes and in one string, its reading in two boxes, results, the reading, which pictures
        are searched, and whether they are somebody's own.
    """
    same = gr.skip()
    # Not by its number: Gradio gives a component another in a session that has changed it.
    by = event.target.elem_id or ""
    asked, read_as = (same,) * 3, (same,) * 2
    if owns and gallery is None:
        return *asked, *read_as, page.alert(GONE), same, page.searched(ENGINE.gallery), False
    if by.startswith("read-example"):
        query, without = event.target.value, ""
        asked = query, without, same
    try:
        if by.startswith("read-") or not (present.strip() or absent.strip()):
            if not by.startswith("read-") and not (query.strip() or without.strip()):
                return gr.skip()
            # where nothing can be read they are emptied, since what stood in them was of another query
            asked, read_as, last = (*asked[:2], f"{query}\n{without}"), ("", ""), None
            last = read(query, without)
            read_as = boxes(last)
        elif last is None or boxes(last) != (present, absent):
            last = edited(present, absent)
        html = results(last, models, None if as_saved else alpha, gallery)
    except ValueError as error:
        html = page.alert(str(error))
    return *asked, *read_as, html, last, same, same


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


def bring(files: list[str], before: Gallery | None, owns: bool):
    """Own pictures to search in; if they are refused, those before them stay in use, and are shown to be."""
    try:
        gallery = take(files)
        return gallery, True, page.searched(gallery), gr.Timer(active=True)
    except ValueError as error:
        gone = page.alert(GONE) if owns and before is None else ""
        html = page.alert(str(error)) + gone + page.searched(over(before).gallery)
        return gr.skip(), before is not None, html, gr.skip()


def forget():
    """Back to the pictures of the index."""
    return None, False, page.note("Your pictures are gone.") + page.searched(ENGINE.gallery)


def ask_about(file: str):
    """An own picture for the multiple choice."""
    try:
        gallery = take(file)
        return gallery, True, 0, page.one_picture(gallery), gr.skip(), gr.Timer(active=True)
    except ValueError as error:
        return *[gr.skip()] * 4, page.alert(str(error)), gr.skip()


def another(row: int, owned: bool):
    """The next picture of the index for the multiple choice."""
    row = 0 if owned else (row + 1) % len(ENGINE.gallery)
    return None, False, row, page.one_picture(ENGINE.gallery, row)


def compare(captions, row, as_saved, alpha, gallery, owned, event: gr.EventData):
    """HTML of the multiple choice, the picture that it is about, and whether that is somebody's own.

    Comes after another picture, too: what is still under way would be shown beside it.
    """
    if isinstance(event.target, gr.State):
        return "", gr.skip(), gr.skip()
    if owned and gallery is None:
        return page.alert(GONE), page.one_picture(ENGINE.gallery, row), False
    lines = [line.strip() for line in captions.splitlines() if line.strip()]
    try:
        html = page.choices(choose(lines, row, None if as_saved else alpha, gallery), lines)
    except ValueError as error:
        html = page.alert(str(error))
    return html, gr.skip(), gr.skip()


def look(gallery: Gallery | None, owns: bool, own: Gallery | None, owned: bool, row: int):
    """Says that own pictures are gone as soon as they are, to whoever does nothing meanwhile."""
    searched, asked = [gr.skip()] * 2, [gr.skip()] * 3
    if owns and gallery is None:
        searched = [page.alert(GONE) + page.searched(ENGINE.gallery), False]
    if owned and own is None:
        asked = [page.alert(GONE), page.one_picture(ENGINE.gallery, row), False]
    return *searched, *asked, gr.Timer(active=gallery is not None or own is not None)


@contextmanager
def told_to_clients():
    """What is wrong with a call of the API, as its error."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise gr.Error(str(error), print_exception=False) from error


@told_to_clients()
def api_search(
    query: str, without: str = "", models: list[str] | None = None, alpha: float | None = None
) -> tuple[str, str, str]:
    """What was read as wanted, what as not wanted, and HTML of what was found."""
    reading = read(query, without)
    return *boxes(reading), results(reading, models, alpha, None)


@told_to_clients()
def api_search_again(
    present: str, absent: str = "", models: list[str] | None = None, alpha: float | None = None
) -> str:
    """HTML of what was found for a reading."""
    return results(edited(present, absent), models, alpha, None)


@told_to_clients()
def api_compare(captions: list[str], row: int = 0, alpha: float | None = None) -> str:
    """HTML of the multiple choice for a picture of the index."""
    return page.choices(choose(captions, row, alpha, None), captions)


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


def controls() -> tuple[gr.Checkbox, gr.Slider]:
    """Whether steered models have the α that each was saved with, and α for all of them; neither if there are none."""
    alphas = ENGINE.alphas
    numbers = [one for alpha in alphas.values() for one in (alpha if isinstance(alpha, tuple) else [alpha])]
    which = "the steered model is" if len(alphas) == 1 else "all steered models are"
    with gr.Column(visible=bool(alphas), min_width=300):
        slider = gr.Slider(
            0,
            max([0.6, *numbers]),
            value=next((alpha for alpha in alphas.values() if not isinstance(alpha, tuple)), 0),
            step=0.05,
            label=f"α: how strongly {which} steered",
            info="0 is the model as it was.",
            buttons=[],
        )
        as_saved = gr.Checkbox(
            True, label=f"α as saved ({page.strengths(alphas) if alphas else ''})", info="Until α is moved."
        )
    # Its number may be cleared; one out of range is refused by the engine, which says so in the page.
    slider.preprocess = lambda value: value
    slider.input(None, slider, as_saved, js="value => value === null", api_visibility="private")
    return as_saved, slider


# Of what is put there later, screen readers say what is not marked to be left alone.
SPOKEN = "element.setAttribute('aria-live', 'polite')"
KINDS = [".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"]
LIMITS = f"up to {MAX_PICTURES}, {MAX_BYTES // 2**20} MB each"
PRIVACY = (
    "They are searched for you alone, in this session. No file is kept: uploads are deleted as soon as they are read. "
    "Small copies stay in memory for an hour, or until you go back to the demo's pictures; then the page says so."
)

with gr.Blocks(title="Search that hears “no”", analytics_enabled=False) as demo:
    gr.Markdown(f"# Search that hears “no”\n{page.intro(ENGINE.info)}")
    mine, last = gr.State(None, time_to_live=KEPT), gr.State(None)
    # What the page believes: the server forgets pictures without telling it.
    owns, owned = gr.Checkbox(False, visible=False), gr.Checkbox(False, visible=False)
    clock = gr.Timer(60, active=False)
    sent = gr.Textbox("", visible=False)
    with gr.Tabs():
        with gr.Tab("Search"):
            with gr.Row():
                query = gr.Textbox(
                    label="Search for",
                    placeholder="a dog without a cat",
                    scale=3,
                    min_width=260,
                    elem_id="read-query",
                )
                without = gr.Textbox(
                    label="Without (optional)",
                    placeholder="cat, bird",
                    scale=2,
                    min_width=260,
                    elem_id="read-without",
                )
            with gr.Row(elem_classes="nc-examples"):
                go = gr.Button("Search", variant="primary", elem_id="read-go")
                examples = [
                    gr.Button(text, size="sm", min_width=130, elem_id=f"read-example{i}")
                    for i, text in enumerate(EXAMPLES)
                ]
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
                as_saved, alpha = controls()
            with gr.Accordion("Search in your own pictures", open=False):
                gr.Markdown(PRIVACY)
                with gr.Row():
                    upload = gr.UploadButton(f"Choose pictures ({LIMITS})", file_count="multiple", file_types=KINDS)
                    drop = gr.Button("Back to the demo's pictures")
                brought = gr.HTML(page.searched(ENGINE.gallery), elem_id="searched", js_on_load=SPOKEN)
            found = gr.HTML(elem_id="results", js_on_load=SPOKEN)
        with gr.Tab("Multiple choice"):
            start, captions_shown = first_question()
            gr.Markdown("Which caption fits the picture best? Each model answers.")
            own, row = gr.State(None, time_to_live=KEPT), gr.State(start)
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
                    mc_as_saved, mc_alpha = controls()
                    ask = gr.Button("Compare", variant="primary")
            chosen = gr.HTML(elem_id="choices", js_on_load=SPOKEN)
        with gr.Tab("About"):
            gr.Markdown(page.about(ENGINE))

    # Before the page's own functions, which would else have the names.
    for name, function in (("search", api_search), ("search_again", api_search_again), ("compare", api_compare)):
        gr.api(function, api_name=name)
    private = {"api_visibility": "private"}
    # What is asked for while another search is under way is not dropped.
    last_one = {"trigger_mode": "always_last", **private}
    # A new text is not read yet; what stands in the boxes would be of the old one.
    gr.on(
        [query.change, without.change],
        None,
        [query, without, sent, present, absent],
        [present, absent],
        js="(query, without, sent, ...boxes) => `${query}\\n${without}` === sent ? boxes : ['', '']",
        **private,
    )
    gr.on(
        [
            *(button.click for button in (go, again, *examples)),
            *(box.submit for box in (query, without, present, absent)),
            *(one.change for one in (models, as_saved, alpha, mine)),
        ],
        search,
        [query, without, present, absent, models, as_saved, alpha, mine, owns, last],
        [query, without, sent, present, absent, found, last, brought, owns],
        show_progress_on=found,
        **last_one,
    )
    # One at a time: unpacked, they take more memory than anything else here.
    embedding = {"concurrency_limit": 1, "concurrency_id": "embed", **last_one}
    upload.upload(bring, [upload, mine, owns], [mine, owns, brought, clock], show_progress_on=brought, **embedding)
    drop.click(forget, None, [mine, owns, brought], **private)
    gr.on(
        [ask.click, captions.submit, mc_as_saved.change, mc_alpha.change, row.change, own.change],
        compare,
        [captions, row, mc_as_saved, mc_alpha, own, owned],
        [chosen, picture, owned],
        show_progress_on=chosen,
        **last_one,
    )
    ask_upload.upload(ask_about, ask_upload, [own, owned, row, picture, chosen, clock], **embedding)
    next_one.click(another, [row, owned], [own, owned, row, picture], **private)
    clock.tick(
        look,
        [mine, owns, own, owned, row],
        [brought, owns, chosen, picture, owned, clock],
        show_progress="hidden",
        **private,
    )
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
