"""Settings from environment variables: read once, all mistakes told together.

The variable of a field is its name in capitals behind a prefix; an empty one counts as absent. What
begins with the prefix and is not known is refused, so that a typo shows. One exception: Kubernetes
adds variables for every Service of a namespace, and a Service may be named as we are.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

S = TypeVar("S", bound=BaseModel)

_SHOWN: Final = 80
_PAGE: Final = "docs/settings.md"
_OF_A_SERVICE: Final = re.compile(
    r"(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
# `<SERVICE>_PORT` may also be a variable of ours; then what stands in it tells the two apart.
_LINK: Final = re.compile(r"(?:tcp|udp|sctp)://\S+")


class SettingsError(ValueError):
    """Settings that cannot be used; `problems` has one sentence for each.

    `usable`: the settings without those that are wrong, None where there is no such thing. `in_doubt`:
    the fields that may be meant otherwise than `usable` has them; all, where a variable is not known.
    """

    def __init__(
        self,
        problems: tuple[str, ...],
        usable: Any = None,
        in_doubt: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.usable = usable
        self.in_doubt = in_doubt


def read_settings(model: type[S], prefix: str, environ: Mapping[str, str]) -> S:
    """Read every variable that begins with `prefix`. Raises SettingsError with every mistake in them."""
    fields = {prefix + name.upper(): name for name in model.model_fields}
    given = {name: text.strip() for name, text in environ.items() if name.startswith(prefix)}
    unknown = sorted(
        name for name in given.keys() - fields.keys() if not _injected(name.removeprefix(prefix), given[name])
    )
    problems = [_unknown(name, prefix, model) for name in unknown]
    values = {
        fields[name]: text
        for name, text in given.items()
        if name in fields and text and not _is_link(name, text)
    }
    wrong: frozenset[str] = frozenset()
    usable: S | None = None
    try:
        usable = model.model_validate(values)
    except ValidationError as error:
        problems += _sentences(model, prefix, error)
        wrong = frozenset(str(part) for each in error.errors() for part in each["loc"][:1])
        usable = _without(model, values, wrong)
    if usable is not None and not problems:
        return usable
    raise SettingsError(tuple(problems), usable, frozenset(model.model_fields) if unknown else wrong)


def accepted(model: type[BaseModel], field: str) -> str:
    """What a field accepts, as it goes on after "is not": `a whole number of seconds from 30 to 3600`."""
    schema = model.model_json_schema()["properties"][field]
    schema = next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), {}) | schema
    if choices := schema.get("enum"):
        return f"{', '.join(choices[:-1])} or {choices[-1]}"
    if schema["type"] in ("integer", "number"):
        return _number(schema, "_seconds" in field)
    if words := model.model_fields[field].title:
        return words
    longest = schema.get("maxLength")
    return f"a text of at most {longest} characters" if longest is not None else "any text"


def _number(schema: Mapping[str, Any], seconds: bool) -> str:
    kind = "a whole number" if schema["type"] == "integer" else "a number"
    least, above, most = (schema.get(each) for each in ("minimum", "exclusiveMinimum", "maximum"))
    bounds = {
        f"from {least} to {most}": least is not None and most is not None,
        f"above {above}, up to {most}": above is not None and most is not None,
        f"from {least} on": least is not None and most is None,
    }
    bound = next((text for text, applies in bounds.items() if applies), "")
    return f"{kind}{' of seconds' if seconds else ''} {bound}".rstrip()


def _unknown(name: str, prefix: str, model: type[BaseModel]) -> str:
    known = [each.upper() for each in model.model_fields]
    meant = difflib.get_close_matches(name.removeprefix(prefix).upper(), known, 1)
    hint = f"did you mean {prefix}{meant[0]}?" if meant else "remove it."
    return f"{name} is not known: {hint} All of them: {_PAGE}"


def _injected(name: str, text: str) -> bool:
    return _OF_A_SERVICE.fullmatch(name) is not None or _is_link(name, text)


def _is_link(name: str, text: str) -> bool:
    """Whether Kubernetes wrote it: what a pod's own definition sets comes before that."""
    return name.endswith("PORT") and _LINK.fullmatch(text) is not None


def _without(model: type[S], values: Mapping[str, str], wrong: frozenset[str]) -> S | None:
    try:
        return model.model_validate({name: text for name, text in values.items() if name not in wrong})
    except ValidationError:
        return None


def _sentences(model: type[BaseModel], prefix: str, error: ValidationError) -> Iterator[str]:
    for each in error.errors(include_url=False, include_context=False):
        if each["loc"]:
            field = str(each["loc"][0])
            described = model.model_fields[field].description
            shown = f"{prefix}{field.upper()}={_shown(each['input'])}"
            yield f"{shown} is not {accepted(model, field)}: {described}"
        else:
            yield each["msg"]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
