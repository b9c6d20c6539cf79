"""Sections: every setting that is free text says whether it is secret."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import ValidationError

from tidegate.connectors.model.section import Public, Secrecy, Secret, SecretOptions, SecretUrl, Section, TextPattern


class Declared(Section):
    place: Public
    password: Secret | None = None
    url: SecretUrl = ""
    names: tuple[Public, ...] = ()
    options: Annotated[dict[str, str | int], SecretOptions(("acks",))]
    mode: Literal["a", "b"] = "a"
    count: int = 1


def test_each_setting_says_what_must_not_be_shown() -> None:
    assert Declared.secrecy() == {
        "place": Secrecy.PUBLIC,
        "password": Secrecy.SECRET,
        "url": Secrecy.URL,
        "names": Secrecy.PUBLIC,
        "options": SecretOptions(("acks",)),
        "mode": Secrecy.PUBLIC,
        "count": Secrecy.PUBLIC,
    }


@pytest.mark.parametrize("annotation", [str, str | None, tuple[str, ...], dict[str, int], dict[Public, str]])
def test_text_that_does_not_say_whether_it_is_secret_is_refused_where_it_is_declared(annotation: object) -> None:
    with pytest.raises(TypeError, match=r"Silent\.text is text that does not say whether it is secret: make it Public"):
        type("Silent", (Section,), {"__annotations__": {"text": annotation}, "__module__": __name__})


def test_text_of_another_form_is_refused_in_words_and_editors_have_the_pattern() -> None:
    class Formed(Section):
        name: Annotated[Public, TextPattern("^[a-z]+$", "small letters")]
        other: Annotated[Public | None, TextPattern("^[a-z]+$", "small letters")] = None

    assert Formed(name="abc").other is None
    for wrong in ("A", "a\n", ""):
        with pytest.raises(ValidationError, match="expected small letters"):
            Formed(name=wrong)
        with pytest.raises(ValidationError, match="expected small letters"):
            Formed(name="a", other=wrong)
    assert Formed.model_json_schema()["properties"]["name"]["pattern"] == "^[a-z]+$"
    assert Formed.secrecy() == {"name": Secrecy.PUBLIC, "other": Secrecy.PUBLIC}
