#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""exposition FILE: what Prometheus' own parser makes of the text, as JSON; 77: this machine has no such parser.

{"families": {NAME: [TYPE, HELP]}, "samples": [[NAME, {LABEL: VALUE}, NUMBER]]}
"""

import json
import sys
from pathlib import Path

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    sys.exit(77)

text = Path(sys.argv[1]).read_text()
families, samples = {}, []
for family in text_string_to_metric_families(text):
    if family.name in families:
        sys.exit(f"{family.name} stands in two places")
    families[family.name] = [family.type, family.documentation]
    samples += [[s.name, s.labels, s.value] for s in family.samples]
if sum(not line.startswith("#") for line in text.splitlines()) != len(samples):
    sys.exit("a line is no sample")
json.dump({"families": families, "samples": samples}, sys.stdout)
