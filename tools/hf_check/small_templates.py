"""Chat templates written for the tests, which together use all that ours executes."""

NO_MESSAGES = [{"messages": [], "prompt": False}]

ALL = {
    # Whole conversations.
    "plain": """{{ bos_token }}{% for message in messages %}
<|{{ message.role }}|>
{{ message['content'] | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}
""",
    "tools": """{%- macro show(value, level=0) -%}
    {%- if value is mapping -%}
        {%- for key, item in value | dictsort -%}
            {{- '\\n' ~ '  ' * level ~ key ~ ':' }}{{ show(item, level=level + 1) }}
        {%- endfor -%}
    {%- elif value is iterable and value is not string -%}
        {%- for item in value %}{{ ' ' ~ item }}{% if not loop.last %},{% endif %}{% endfor -%}
    {%- else -%}
        {{- ' ' ~ value }}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(system='', turns=0, last=none) -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set ns.system = messages[0].content | trim -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set rest = messages -%}
{%- endif -%}
{{ bos_token }}[{{ ns.system }}]
{%- if tools is not none and tools | length > 0 %}

{% for tool in tools %}{{ tool | tojson }}
{{ tool.function.parameters | tojson(indent=2) }}{{ show(tool.function) }}
{% endfor %}
{%- endif %}
{%- for message in rest %}
    {%- if message.role not in ['user', 'assistant', 'tool'] -%}
        {{ raise_exception('unknown role ' + message.role) }}
    {%- endif -%}
    {%- if loop.previtem is defined and loop.previtem.role == message.role %}
        {{- raise_exception('roles must alternate') -}}
    {%- endif %}
    {%- set ns.turns = ns.turns + (1 if message.role == 'user' else 0) %}
    {%- set ns.last = message %}
<{{ message.role | upper }} {{ loop.index }}/{{ loop.length }}>
    {%- if message.tool_calls is defined and message.tool_calls %}
        {%- for call in message.tool_calls %}
            {%- set function = call['function'] %}
            {{- function.name }}({% for name, value in function.arguments.items() %}{{ name }}={{ value | tojson }}{{ ', ' if not loop.last }}{% endfor %})
        {%- endfor %}
    {%- else %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{% generation %}{{ content }}{% endgeneration %}
    {%- endif %}
{%- endfor %}
{{- '\\n' ~ ns.turns ~ ' ' ~ ns.last.role if ns.last else '' }}
{%- if add_generation_prompt and (enable_thinking is not defined or enable_thinking) %}<think>{% endif %}
""",
    # One thing after the other.
    "values": """{{ [1, 2.5, 'a', "it's", none, true, [], {}, {'k': (1,)}, 1e20, 1/3, -0.0, 10 // 3, -7 // 2, -7 % 3, 2 ** 10] }}
{{ 'x' ~ 1 ~ none ~ 2.0 }} {{ 'ab' * 2 + 'c' }} {{ [1] + [2] }} {{ 7 - 2 * 3 }} {{ (1, 2) }} {{ -2 ** 2 }} {{ +3 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ not '' }} {{ 1 and 0 or 'z' }}
{{ 'b' in 'abc' }} {{ 2 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 3 not in (1, 2) }} {{ undefined_name }}|{{ {}.x }}|{{ {'a': 1}.a }}
{{ '\\u00e9\\x41\\t\\101\\q' }} {{ 'a' 'b' }} {{ "caf\u00e9 \U0001f600"[3:] }} {{ 'h\u00e9llo'[1] }} {{ 'hello'[::-1] }} {{ [1,2,3,4][1:-1] }} {{ [1,2,3][-1] }} {{ [0,1,2,3,4][::2] }} {{ [0,1,2,3][3:0:-2] }} {{ [1][5] }}|
{{ 'yes' if none else 'no' }} {{ 'only' if false }}|{{ 1 if true else 2 if true else 3 }} {{ {'a': {'b': [10, 20]}}.a.b[1] }} {{ {'a': 1}['a'] }} {{ [[1, 2]][0].1 }}""",
    "filters": """{{ {'b': [1, {'c': 'd\u00e9<&>"'}], 'a': none} | tojson }} {{ 'd\u00e9\U0001f600\\n\\u007f' | tojson(ensure_ascii=true) }} {{ [1, [], {}] | tojson(indent=1) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}
{{ 'caf\u00e9' | length }} {{ [1,2] | count }} {{ {'a': 1} | length }} {{ nothing | length }} {{ '  x \\n' | trim }}| {{ 'xxaxx' | trim('x') }} {{ 12 | string ~ 'a' }} {{ nothing | default('d') }} {{ '' | default('d') }}|{{ '' | default('d', true) }} {{ none | d('e', boolean=true) }}
{{ [1, 'a', none] | join('-') }} {{ [{'n': 1}, {'n': 2}] | join(', ', attribute='n') }} {{ {'a': 1, 'b': 2} | items | list }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsort(by='value', reverse=true) }}
{{ 'aBc d\u00e9' | upper }} {{ 'ABC \u00c9' | lower }} {{ 'hello wORLD-x (y' | title }} {{ 'hELLO' | capitalize }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'a.b' | replace('.', '') }}
{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ [{'k': 2}, {'k': 1}] | sort(attribute='k', reverse=true) }} {{ [1, 2, 1, 'a', 'A'] | unique | list }} {{ [3, 1, 2] | min }} {{ [3, 1, 2] | max }} {{ [] | max }}| {{ [1, 2, 3] | first }} {{ [1, 2, 3] | last }} {{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ -3 | abs }}
{{ '42' | int }} {{ '4.9' | int }} {{ 'x' | int(7) }} {{ 3.7 | int }} {{ '1.5' | float }} {{ 2 | float }} {{ true | int }}
{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(width='> ', blank=true) }}
{{ [1, 2, 3, 4] | select('odd') | list }} {{ [1, 2, 3] | reject('equalto', 2) | list }} {{ [0, 1, '', 'a'] | select | list }} {{ [{'r': 'u'}, {'r': 's'}, {}] | selectattr('r', 'equalto', 'u') | list }} {{ [{'r': 1}, {}] | selectattr('r', 'defined') | list }} {{ [{'r': 1}, {'r': 0}] | rejectattr('r') | list }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }} {{ ['a', 'b'] | map('upper') | join }} {{ [{}] | map(attribute='x', default='?') | list }} {{ '{"a": [1, null]}' | from_json }} {{ 'x' | safe }}
{{ 'empty is true' if [] | select('odd') }} {% filter upper | trim %} block {{ 'text' }} {% endfilter %} {% set x | lower %} A{{ 'B' }} {% endset %}[{{ x }}]""",
    "tests": """{{ x is defined }} {{ x is undefined }} {{ none is none }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ 'a' is sequence }} {{ 1 is iterable }} {{ true is boolean }} {{ true is true }} {{ false is false }} {{ 1 is true }} {{ 1 is number }} {{ 1.0 is float }} {{ true is integer }} {{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 1 is not none }} {{ 'a' is eq 'a' }} {{ 2 is gt 1 }} {{ 1 is in [1, 2] }} {{ 'ab' is lower }} {{ 'AB1' is upper }} {{ x is sequence }} {{ range is callable }} {{ 1 is ne(2) and 'b' is string or false }}""",
    "methods": """{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c d'.split(None, 2) }} {{ 'a.b.c'.rsplit('.', 1) }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ '  x '.strip() }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xxaxx'.rstrip('x') }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'aXbX'.replace('X', '-') }} {{ 'abab'.replace('', '.') }} {{ 'ab'.upper() }} {{ 'AB'.lower() }} {{ 'aB cD'.title() }} {{ 'aB'.capitalize() }} {{ '\u00e9a'.find('a') }} {{ 'aa'.count('a') }} {{ '-'.join(['a', 'b']) }} {{ '{} {1} {n}'.format('x', 'y', n=1) if false else '{0}-{n}'.format('x', n=1) }} {{ '12'.isdigit() }} {{ ' '.isspace() }}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1, 'b': 2}.keys() | list }} {{ {'a': 1}.values() | list }} {% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }}""",
    "loops": """{% for i in range(5) if i is odd %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ i }};{% else %}none{% endfor %}
{% for i in [] %}x{% else %}empty{% endfor %} {% for a, b in [(1, 2), [3, 4]] %}{{ a + b }} {% endfor %}{% for c in 'h\u00e9' %}<{{ c }}>{% endfor %}{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}{% for i in range(10, 0, -3) %}{{ i }} {% if i < 5 %}{% break %}{% endif %}{% if i == 7 %}{% continue %}{% endif %}.{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = i * 10 %}{{ x }} {% endfor %}{{ x }} {% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }} {% set a, b = 1, 2 %}{{ b }}{{ a }} {% for i in [1,2,3] %}{{ loop.cycle('a', 'b') }}{% endfor %}
{% macro m(a, b='d', c=none) %}[{{ a }}{{ b }}{{ c }}{{ x }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=2, a=0) }}{{ m() }}{% set x = 5 %}{{ m(1) }}{% macro count(n) %}{% if n %}{{ n }}{{ count(n - 1) }}{% endif %}{% endmacro %}{{ count(4) }}
{% set block %}a{{ x }}b{% endset %}{{ block | length }} {% if x > 9 %}1{% elif x == 5 %}2{% else %}3{% endif %} {{ strftime_now('%d %b %Y %H:%M') }} {{ dict(a=1, b=2) }} {{ namespace({'q': 1}).q }}""",
    "spaces": """  {% if true %}
    kept
  {% endif %}
  {{ 'a' }}
   {# gone #}
x {%- if true -%}  y  {%- endif %} z
  {%+ if true %}plus{% endif +%}
tail
{{- 'b' -}}   

  c {# a
 comment -#}   d
{% raw %}{{ raw }} {% if %}{% endraw %}
\t{% set q = 1 %}
end{{ q }}

""",
    # What both refuse.
    "undefined_member": "{{ a.b.c }}",
    "undefined_call": "{{ nothing() }}",
    "exception": "a{{ raise_exception('stop here') }}",
    "append": "{% set l = [] %}{{ l.append(1) }}",
    "pop": "{{ {'a': 1}.pop('a') }}",
    "add_none": "{{ none + 'a' }}",
    "add_mixed": "{{ 'a' + 1 }}",
    "order_mixed": "{{ [1, 'a'] | sort }}",
    "generator_length": "{{ [1] | select('odd') | length }}",
    "json_undefined": "{{ nothing | tojson }}",
    "unclosed": "{% if true %}a",
    "stray": "{{ 1 } }}",
    "bad_filter": "{{ 1 | nofilter }}",
    "bad_test": "{{ 1 is notest }}",
    "zero": "{{ 1 // 0 }}",
    "many_arguments": "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "unknown_argument": "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "unpack": "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "not_namespace": "{% set a = {} %}{% set a.b = 1 %}",
}

REQUESTS = {name: NO_MESSAGES for name in ALL if name not in ("plain", "tools")}
