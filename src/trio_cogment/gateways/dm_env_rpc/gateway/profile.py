"""The profile of a gateway: its templates of worlds, and what the settings of requests make of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.gateways.dm_env_rpc.gateway import setting_values as values
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.choice import check_classes
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError
from trio_cogment.gateways.dm_env_rpc.gateway.settings import Settings
from trio_cogment.gateways.dm_env_rpc.gateway.templates import CHOICES, FLAGS, SECONDS, WorldTemplate
from trio_cogment.gateways.dm_env_rpc.gateway.trial_settings import (
    check_configs,
    check_seed_field,
    goes_on,
    in_world,
    take_seed,
    take_trial_settings,
    with_seed,
)
from trio_cogment.sdk.spec import Spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The name of the only template, where it needs none.
DEFAULT = "default"
_SEED = "seed"
_LONGEST_NAME = 200
_MOST_SECONDS = 10.0**9
_MOST_SLOTS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Which worlds clients can create.

    Attributes:
        templates: what a world starts from, by the name that the setting `template` has. Without that setting it is the
            only one, or `default`.
        spec: the types of the project.
        required_settings: CreateWorld is refused without these.
        seed_field: the field of the environment's configuration that the setting `seed` sets.

    Raises:
        InvalidArgumentError: there is no template, or the configurations or annotations of one do not go with
            the types; or there is no such required setting, or no such field for seeds.
    """

    templates: Mapping[str, WorldTemplate]
    spec: Spec = field(default_factory=Spec)
    required_settings: Collection[str] = ()
    seed_field: str = _SEED

    def __post_init__(self) -> None:
        if not self.templates:
            raise InvalidArgumentError("templates: expected at least one, got none")
        for name, template in self.templates.items():
            try:
                check_configs(template.params, self.spec)
                if self.spec != Spec():
                    check_classes(self.spec, template.classes)
                    _check_actors(self.spec, template)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"template {name!r}: {error}") from None
        if self.spec != Spec():
            self._check_names()

    def _check_names(self) -> None:
        """Refuse names of settings and fields that no client could give."""
        if self.seed_field != _SEED or _SEED in self.required_settings:
            check_seed_field(self.spec, self.seed_field)
        made = [Settings("CreateWorld", {}) for _ in self.templates]
        for given, template in zip(made, self.templates.values(), strict=True):
            given.text("template")
            self._made(template, given)
        for name in self.required_settings:
            if not any(given.knows(name) for given in made):
                raise InvalidArgumentError(f"required_settings: no world has a setting {name!r}")

    @classmethod
    def of(cls, params: TrialParams, *, spec: Spec | None = None, **policies: Any) -> Profile:
        """Return a profile with one template.

        Args:
            params: of its trials.
            spec: the types of the project.
            policies: see `WorldTemplate`.
        """
        return cls(templates={DEFAULT: WorldTemplate(params=params, **policies)}, spec=spec or Spec())

    def typed(self, spec: Spec) -> Profile:
        """Return the profile with these types, if it has none of its own.

        Raises:
            InvalidArgumentError: a configuration is not of its type.
        """
        return replace(self, spec=spec) if self.spec == Spec() else self

    # Settings

    def create_world(self, settings: Mapping[str, pb.Tensor]) -> WorldTemplate:
        """Return the template of a world that is created; its `name` is empty unless a setting says otherwise.

        Raises:
            InvalidArgumentError: a setting is missing, unknown, or makes no sense; the text names it.
            NotFoundError: there is no such template.
        """
        given = Settings("CreateWorld", settings)
        given.require(self.required_settings)
        return self._made(self._template(given), given)

    def join(self, template: WorldTemplate, settings: Mapping[str, pb.Tensor], free_slots: Collection[str]) -> str:
        """Return the name of the actor that a client becomes.

        Args:
            template: of the world.
            settings: of JoinWorld.
            free_slots: the names of the actors that nobody has joined as.

        Raises:
            InvalidArgumentError: a setting is unknown or makes no sense, or one is needed; the text names it.
            NotFoundError: there is no such actor, or none of this class.
            AlreadyExistsError: the actor is somebody else's.
            ResourceExhaustedError: everybody is there already.
        """
        given = Settings("JoinWorld", settings)
        name, actor_class = given.text("actor_name"), given.text("actor_class")
        given.finish()
        slots = template.slots
        known = ", ".join(map(repr, slots))
        if name is not None:
            if name not in slots:
                raise NotFoundError(f"setting 'actor_name': expected one of {known}; got {name!r}")
            if actor_class not in (None, slots[name].actor_class):
                own = slots[name].actor_class
                raise InvalidArgumentError(f"setting 'actor_class': actor {name!r} is a {own!r}, not a {actor_class!r}")
            if name not in free_slots:
                raise AlreadyExistsError(f"actor {name!r}: somebody else has joined as it")
            return name
        if actor_class is not None:
            classes = sorted({slot.actor_class for slot in slots.values()})
            if actor_class not in classes:
                expected = ", ".join(map(repr, classes))
                raise NotFoundError(f"setting 'actor_class': expected one of {expected}; got {actor_class!r}")
        fitting = [each for each in slots if actor_class in (None, slots[each].actor_class)]
        free = [each for each in fitting if each in free_slots]
        if not free:
            raise ResourceExhaustedError(f"actors {', '.join(map(repr, fitting))}: others have joined as all of them")
        if actor_class is None and len(free) > 1:
            choice = ", ".join(map(repr, free))
            raise InvalidArgumentError(
                f"JoinWorld: expected the setting 'actor_name' or 'actor_class'; free are {choice}"
            )
        return free[0]

    def reset(self, template: WorldTemplate, settings: Mapping[str, pb.Tensor]) -> WorldTemplate:
        """Return the template of a world after a Reset or a ResetWorld with settings: they hold from its next trial on.

        Raises:
            InvalidArgumentError: a setting is unknown or makes no sense; the text names it.
        """
        return self._changed(template, Settings("Reset", settings), {})

    def _template(self, given: Settings) -> WorldTemplate:
        name = given.text("template")
        if name is None:
            if len(self.templates) > 1 and DEFAULT not in self.templates:
                known = ", ".join(map(repr, self.templates))
                raise InvalidArgumentError(f"CreateWorld: expected the setting 'template', which is one of {known}")
            return self.templates.get(DEFAULT) or next(iter(self.templates.values()))
        if name not in self.templates:
            known = ", ".join(map(repr, self.templates))
            raise NotFoundError(f"setting 'template': expected one of {known}; got {name!r}")
        return self.templates[name]

    def _made(self, template: WorldTemplate, given: Settings) -> WorldTemplate:
        name = given.take("world_name", _world_name) or ""
        return self._changed(template, given, {"name": name, **_policies(given)})

    def _changed(self, template: WorldTemplate, given: Settings, changes: dict[str, Any]) -> WorldTemplate:
        params = take_trial_settings(template.params, given, self.spec)
        seed = take_seed(given, params, self.spec, self.seed_field)
        given.finish()
        if seed is not None:
            changes["seed"] = seed
        return replace(template, params=params, **changes)

    # Trials

    def trial(self, template: WorldTemplate, world: str) -> TrialParams:
        """Return the parameters of a world's next trial.

        Args:
            template: of the world.
            world: its name.
        """
        params = in_world(template.params, self.spec, world)
        return params if template.seed is None else with_seed(params, self.spec, self.seed_field, template.seed)

    def after_trial(self, template: WorldTemplate) -> WorldTemplate:
        """Return the template of a world whose next trial has become a sequence: a seed is used once.

        The trials of `trio_cogment.rl` go on with the random generator that was seeded. Those of other environments
        have no such thing, and so each of them gets the next higher seed.
        """
        if template.seed is None:
            return template
        if goes_on(self.spec):
            return replace(template, seed=None)
        following = replace(template, seed=template.seed + 1)
        try:
            self.trial(following, "")
        except InvalidArgumentError:  # it was the highest one that the field can hold
            return replace(template, seed=0)
        return following


def _check_actors(spec: Spec, template: WorldTemplate) -> None:
    """Refuse slots of a class that the types do not have: no client could act as them."""
    known = list(spec.names())
    for actor in template.slots.values():
        if known and actor.actor_class not in known:
            advice = suggestion(actor.actor_class, known)
            raise InvalidArgumentError(f"actor {actor.name!r}: unknown actor_class {actor.actor_class!r}; {advice}")


def _world_name(value: NDArray[Any]) -> str:
    name = values.text(value)
    if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise NotThatError(f"a name of 1 to {_LONGEST_NAME} printable characters")
    return name


def _policies(given: Settings) -> dict[str, Any]:
    """Return the policies that settings give."""
    found: dict[str, Any] = {"start_when": given.take("start_when", _start_when)}
    for name, choices in CHOICES.items():
        found[name] = given.choice(name, choices)
    for name in SECONDS:
        found[name] = given.take(name, _seconds)
    for name in FLAGS:
        found[name] = given.take(name, values.boolean)
    return {name: value for name, value in found.items() if value is not None}


def _start_when(value: NDArray[Any]) -> str | int:
    if value.dtype.kind == "U":
        if not value.ndim and value.item() in ("all", "first"):
            return str(value.item())
        raise NotThatError("'all', 'first' or a number of actors")
    return values.integer(value, 1, _MOST_SLOTS)


def _seconds(value: NDArray[Any]) -> float:
    found = values.number(value)
    if not 0 <= found <= _MOST_SECONDS:
        raise NotThatError("seconds, 0 or more")
    return found
