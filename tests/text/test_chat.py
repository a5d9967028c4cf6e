"""Chat templates: the text of the reference library, and untrusted programs within their limits."""

import itertools
import json
import resource
from typing import Any, cast

import pytest
import tokenizers
from pydantic import JsonValue

from clearhead.errors import UserError
from clearhead.text import worker
from clearhead.text.chat import render

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

Conversation = list[dict[str, JsonValue]]

# Written for these tests, each in the manner of a family of chat models.
TEMPLATES = {
    "turns": """
{%- for m in messages %}
    {{- '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "system inside the first instruction": """
{%- if messages[0].role == 'system' -%}
    {%- set rest = messages[1:] -%}
    {%- set system = '<<SYS>>\\n' ~ messages[0].content | trim ~ '\\n<</SYS>>\\n\\n' -%}
{%- else -%}
    {%- set rest, system = messages, '' -%}
{%- endif -%}
{%- for m in rest -%}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate:\\n user, assistant, user, ...') -}}
    {%- endif -%}
    {%- if m.role == 'user' -%}
        {{- bos_token ~ '[INST] ' ~ (system if loop.first else '') ~ m.content.strip() ~ ' [/INST]' -}}
    {%- elif m.role == 'assistant' -%}
        {{- ' ' + m.content | trim + ' ' + eos_token -}}
    {%- endif -%}
{%- endfor -%}
""",
    "headers, a date and tools": """
{{- bos_token }}
{%- set ns = namespace(date=date_string | default(strftime_now('%Y'), true), n=0) %}
{%- if tools is not none and tools %}
    {{- '<|start_header_id|>system<|end_header_id|>\\n\\nYear ' + ns.date + '\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) ~ '\\n\\n' }}
        {%- set ns.n = ns.n + 1 %}
    {%- endfor %}
    {{- '%d tools, %s<|eot_id|>' % (ns.n, 'é' | upper) }}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- set call = (message.tool_calls | first).function %}
        {{- '{"name": "' ~ call.name ~ '", "parameters": ' ~ call.arguments | tojson ~ '}' }}
    {%- else %}
        {{- '<|start_header_id|>' ~ message['role'] ~ '<|end_header_id|>\\n\\n' }}
        {{- message.content | trim ~ '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' if add_generation_prompt }}
""",
    "tools before the last user": """
{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'tool' %}{% continue %}{% endif %}
    {%- if m.role == 'user' %}
        {%- if tools is defined and tools and m == users[-1] %}
            {{- '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, value in tool.function.items() if key != 'return' %}
                    {{- '"' + key + '": ' + value | tojson(sort_keys=True, separators=(',', ':')) }}
                    {{- ', ' if not loop.last }}
                {%- endfor %}
                {{- '}}' ~ (', ' if not loop.last else ']') }}
            {%- endfor %}
            {{- '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + m.content + '[/INST]' }}
    {%- elif m.content is string %}
        {{- ' ' + m['content'] + eos_token }}
    {%- endif %}
{%- endfor %}
""",
    "thinking and tool calls": """
{%- macro thought(text) %}<think>\\n{{ text.strip('\\n') }}\\n</think>\\n\\n{% endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1, searching=true) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.searching and m.role == 'user' and not m.content.startswith('<tool_response>') %}
        {%- set ns.last = index %}
        {%- set ns.searching = false %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last %}{{ thought(reasoning) }}{% endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function else call %}
            {{- '\\n<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content ~ '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    "blocks on lines of their own": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + (message['content'] or 'nothing') + eos_token }}
{% endif %}
    {# an indented comment #}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
""",
    "renamed roles and typed parts": """
{{- bos_token }}
{%- macro body(content) -%}
    {%- if content is string -%}{{ content | trim }}
    {%- else -%}
        {%- for item in content or [] -%}
            {{- item.text | trim if item.type == 'text' else '<image>' -}}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro %}
{%- for message in messages if message.role in ['user', 'assistant', 'model'] %}
    {%- set role = {'assistant': 'model'}.get(message.role, message.role) %}
    {{- '<start_of_turn>' + role + '\\n' + body(message.content) + '<end_of_turn>\\n' }}
{%- else %}
    {{- 'nobody spoke' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
""",
    "marked generation": """
{%- set mark = 'outer' %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
{% generation %}
{% set mark = message.content ~ eos_token %}
{{ mark }}
{% endgeneration %}
    {%- else %}
        {{- message.role[:1] | upper ~ ': ' ~ message.content }}
    {%- endif %}
    {%- if loop.index > 4 %}{% break %}{% endif %}
{%- endfor %}
{{ mark }}{{ documents is none }}{{ undefined_name }}{{ [1, 2.5, none, 'é', {'a': true}] }}
""",
    "filters, tests and operators": """
{%- set words = 'the quick brown fox'.split(' ') -%}
{{ words | map('capitalize') | join(', ') }} {{ words | batch(3, '-') | list }} {{ words[1:] ~ words[:-2] }}
{{ 'a%sb' | format('x') }} {{ '{0}-{name:>6}'.format(1, name='n') }} {{ 2 ** 10 + 7 // 2 * 3 - 5 % 3 }}
{{ words | sort(reverse=true) }}{{ words | groupby('0') | length }}{{ ['a'] * 3 + ['b'] }}{{ 'ab' * 2 }}
{% call(x) wrap('w') %}<{{ x }}>{% endcall %}
{% macro wrap(y) %}{{ caller(y * 2) }}{% endmacro %}
{% set block %}{% for i in range(3) %}{{ i }}{{ loop.cycle('a', 'b') }}{% endfor %}{% endset %}
{% filter upper %}{{ block }}{% endfilter %}{{ dict(a=1, b=[2]) | tojson }}{{ dict.fromkeys(['k'], 1) }}
{{ messages | map(attribute='role') | unique | list }}{{ 'x' is in ['x'] }}{{ 3 is odd }}{{ '<&>' | tojson }}
{% for a, b in {'z': 1, 'y': [2, 3]} | dictsort %}{{ a }}{{ b }}{% endfor %}{{ 'line one\nline two' | indent(2) }}
{% for n in [[1, [2, 3]], 4] recursive %}{{ loop(n) if n is iterable else n }}{% endfor %}
""".replace("{% call(x) wrap('w') %}<{{ x }}>{% endcall %}\n", "")
    + "{% call(x) wrap('w') %}<{{ x }}>{% endcall %}",
}

WEATHER: dict[str, JsonValue] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather <today> & “tomorrow”",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "return": {"type": "string"},
    },
}
TOOLS: list[Conversation | None] = [None, [WEATHER], [WEATHER, {"type": "function", "function": {"name": "b"}}]]
CONVERSATIONS: dict[str, Conversation] = {
    "one": [{"role": "user", "content": "  Hello,\n wörld! "}],
    "system": [
        {"role": "system", "content": "Be brief. "},
        {"role": "user", "content": "Say <b>1</b>"},
        {"role": "assistant", "content": " 1"},
        {"role": "user", "content": "{{ 7 * 7 }} {% raw %}"},
    ],
    "thinking": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "<think>\neasy\n</think>\n\n4", "name": None},
        {"role": "user", "content": "3+3?"},
        {"role": "assistant", "content": "6", "thinking": "harder\n"},
    ],
    "tools": [
        {"role": "user", "content": "Weather in Bonn?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln"}}}],
        },
        {"role": "tool", "content": "rain"},
        {"role": "tool", "content": "3.5"},
        {"role": "assistant", "content": "Rain."},
    ],
    "parts": [{"role": "user", "content": [{"type": "text", "text": " see "}, {"type": "image"}]}],
}


def reference(template: str, messages: Conversation, *, prompt: bool, tools: Conversation | None) -> str:
    from transformers import PreTrainedTokenizerFast

    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, **SPECIAL)
    chat, schemas = cast("Any", messages), cast("Any", tools)
    text = tokenizer.apply_chat_template(
        chat, tools=schemas, chat_template=template, tokenize=False, add_generation_prompt=prompt
    )
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("template", TEMPLATES)
def test_equals_the_reference(template: str):
    source, written = TEMPLATES[template], 0
    for messages in CONVERSATIONS.values():
        for prompt, tools in itertools.product((False, True), TOOLS):
            try:
                expected = reference(source, messages, prompt=prompt, tools=tools)
            except Exception:  # what the reference cannot write, we refuse
                with pytest.raises(UserError):
                    render(source, messages, add_generation_prompt=prompt, special=SPECIAL, tools=tools)
                continue
            assert render(source, messages, add_generation_prompt=prompt, special=SPECIAL, tools=tools) == expected
            written += 1
    assert written >= 6


def test_messages_are_not_changed():
    messages = CONVERSATIONS["thinking"]
    before = json.dumps(messages)
    render(TEMPLATES["thinking and tool calls"], messages, special=SPECIAL)
    assert json.dumps(messages) == before


def line_of(template: str, messages: Conversation | None = None) -> str:
    with pytest.raises(UserError) as caught:
        render(template, messages or CONVERSATIONS["one"], special=SPECIAL)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


HOSTILE = {
    "class": "{{ ''.__class__ }}",
    "subclasses": "{{ ().__class__.__mro__[1].__subclasses__() }}",
    "item": "{{ messages['__class__'] }}",
    "attr filter": "{{ messages | attr('__class__') }}",
    "map attribute": "{{ messages | map(attribute='__class__') | list }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "namespace init": "{{ namespace.__init__.__globals__['os'].system('true') }}",
    "cycler": "{{ cycler.__init__.__globals__ }}",
    "self": "{{ self._TemplateReference__context.environment }}",
    "format": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "import": "{% import 'os' as os %}{{ os.system('true') }}",
    "include": "{% include '../secret' %}",
    "builtins": "{{ open('secret').read() }}",
    "change": "{{ messages.append(messages[0]) }}",
    "clear": "{{ messages[0].clear() }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_python_is_within_reach(name: str):
    assert line_of(HOSTILE[name]).startswith("chat_template")


HUNGRY = {
    "steps": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "one step": "{{ 9 ** 999999999 }}",
    "recursion": "{% macro f(n) %}{% if n < 40 %}{{ f(n + 1) ~ f(n + 1) }}{% endif %}{% endmacro %}{{ f(0) }}",
    "endless recursion": "{% block b %}{{ self.b() }}{% endblock %}",
    "a long value": "{{ 'a' * 10 ** 10 }}",
    "a long list": "{{ [messages] * 10 ** 9 }}",
    "doubling": "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "nesting": "{% set ns = namespace(s=1) %}{% for i in range(60) %}{% set ns.s = [ns.s] * 2 %}{% endfor %}{{ ns.s }}",
    "a wide field": "{{ '{:10000000000}'.format(1) }}",
    "a filter": "{% set s = 'a' * 1000000 %}{{ s | replace('a', s) }}",
    "a long template": "a" * 300_000,
    "many parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
}


@pytest.mark.parametrize("name", HUNGRY)
def test_work_is_bounded(name: str, monkeypatch):
    monkeypatch.setattr(worker, "SECONDS", 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert line_of(HUNGRY[name]).startswith("chat_template")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024


def test_a_long_conversation_is_not_refused():
    messages: Conversation = [
        {"role": ("user", "assistant")[i % 2], "content": f"turn {i}: " + "word " * 100} for i in range(1000)
    ]
    for template in TEMPLATES.values():
        render(template, messages, special=SPECIAL, tools=[WEATHER] * 20)
    one: Conversation = [{"role": "user", "content": "word " * 1_000_000}]
    assert len(render(TEMPLATES["turns"], one, special=SPECIAL)) > 5_000_000


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("line one\n{% for m in messages %}", "chat_template:2: expected a Jinja template, got"),
        ("\n\n{{ 1 / 0 }}", "chat_template:3: expected messages that it can write, got ZeroDivisionError"),
        ("{{ namespace(a=1).b.c }}", "UndefinedError"),
        ("{{ nothing.at.all }}", "UndefinedError: 'nothing' is undefined"),
        ("{{ raise_exception('roles must\n alternate') }}", "got its refusal: roles must alternate; try other"),
        ("{{ messages | unheard_of }}", "No filter named 'unheard_of'"),
        ("{{ messages[0].append() }}", "chat_template:1"),
    ],
)
def test_errors_say_where_and_what(template: str, expected: str):
    assert expected in line_of(template)


@pytest.mark.parametrize("messages", [[], ["text"], [{"role": "user", "content": object()}], "text"])
def test_messages_that_are_none(messages: list[dict[str, JsonValue]]):
    with pytest.raises(UserError, match=r"^messages: expected"):
        render(TEMPLATES["turns"], messages, special=SPECIAL)
