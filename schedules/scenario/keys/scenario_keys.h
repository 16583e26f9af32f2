// SPDX-License-Identifier: Apache-2.0
// The keys of a scenario, as tables (docs/scenario.md explains each; scenarios/schema/ is written
// from them), and those of a file of measured cases.
#pragma once

#include "schedules/base/json_keys.h"

namespace rehearse {

const KeyTable& scenario_key_table();
const KeyTable& plan_key_table();
// One measured case and the file of them (`rehearse validate`). `scenario` and `layer` inside are
// open here: parse_scenario checks them.
const KeyTable& case_file_key_table();
// What a case of the form `moe_layer` says of its layer.
const KeyTable& moe_layer_key_table();

}  // namespace rehearse
