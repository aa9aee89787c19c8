"""The metric Spaces as they run on the Hub: built, without this package, in a browser and through the API."""

from __future__ import annotations

import json

import pytest
from fixtures_browser import open_page, serve

from negation_clip.metrics import judge_summary, negbench_mcq
from negation_clip.spaces import METRIC_SPACES, build_space

pytestmark = pytest.mark.slow

# What is typed: the form's fields, a mistake in the first one, and what is then said
TYPED = {
    "negbench": (
        {"Similarities": "[[0.9, 0.1], [0.2, 0.7], [0.3, 0.3]]", "Right captions": "[0, 0, 1]", "Templates": ""},
        '[[0.9, "0.1"]]',
        'row 0, entry 1 is "0.1"',
    ),
    "mllm_judge": (
        {"Context": '[["Yes.", "No"], ["yes", "Yes"]]', "Negation": '[["No.", ""], ["Yes", "perhaps"]]'},
        "[[1]]",
        "row 0, entry 0 is 1",
    ),
}
EXPECTED = {
    "negbench": lambda: negbench_mcq([[0.9, 0.1], [0.2, 0.7], [0.3, 0.3]], [0, 0, 1]),
    "mllm_judge": lambda: judge_summary(
        [["yes", "no"], ["yes", "yes"]], [["no", None], ["yes", "unparsed"]], ks=(1, 2)
    ),
}


@pytest.fixture(scope="module", params=METRIC_SPACES)
def running(request, tmp_path_factory):
    """Name and address of a Space that runs, with caches of its own and nothing that its requirements do not name."""
    folder = build_space(request.param, tmp_path_factory.mktemp("space") / "built", f"someone/{request.param}")
    environment = {"HF_HOME": str(tmp_path_factory.mktemp("home")), "HF_EVALUATE_OFFLINE": "1"}
    with serve(folder, environment, without=["negation_clip", "transformers"]) as url:
        yield request.param, url


def shown(page) -> dict:
    """The JSON on the page, without line numbers and the signs that fold it."""
    lines = page.locator(".json-holder .line .content").all_inner_texts()
    return json.loads("".join(line.strip("▼▶ \n") for line in lines))


def test_page(running, browser):
    from playwright.sync_api import expect

    name, url = running
    fields, mistake, says = TYPED[name]
    with open_page(browser, url) as page:
        submit = page.get_by_role("button", name="Submit")
        for label, text in fields.items():
            page.get_by_label(label).fill(text)
        submit.click()
        result = page.locator(".json-holder")
        expect(result).to_contain_text('"n"', timeout=30_000)
        assert shown(page) == EXPECTED[name]()

        page.get_by_label(next(iter(fields))).fill(mistake)
        submit.click()
        toast = page.get_by_test_id("toast-body")
        expect(toast).to_contain_text(says, timeout=30_000)
        assert "Traceback" not in page.inner_text("body")

        # and on it goes, with the example's own figures
        page.locator("table tbody tr").first.click()
        expect(page.get_by_label(next(iter(fields)))).not_to_have_value(mistake, timeout=30_000)
        submit.click()
        expect(result).to_contain_text('"n": 2', timeout=30_000)


def test_api(running):
    from gradio_client import Client

    name, url = running
    fields, mistake, says = TYPED[name]
    client = Client(url, verbose=False)
    assert client.predict(*fields.values(), api_name="/compute") == EXPECTED[name]()
    with pytest.raises(Exception, match=says):
        client.predict(mistake, *list(fields.values())[1:], api_name="/compute")
