from __future__ import annotations

import pytest

from habitus.web.site_map import replace_commands_by_pages


@pytest.mark.req("CL-02")
@pytest.mark.parametrize(
    ("said", "on_the_page"),
    [
        ("Run 'habitus skills list --state broken'.", "Open Skills."),
        ("Nothing was changed; run 'habitus doctor'.", "Nothing was changed; open Doctor, under Settings."),
        ("Set it with habitus config set model x:y.", "Set it with Settings."),
        ("See what Habitus does: habitus tour", "See what Habitus does: habitus tour"),
    ],
)
def test_a_command_becomes_the_page_that_does_it(said: str, on_the_page: str) -> None:
    assert replace_commands_by_pages(said) == on_the_page
