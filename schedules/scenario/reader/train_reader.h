// SPDX-License-Identifier: Apache-2.0
// The keys of `train`.
#pragma once

#include "schedules/base/json_reader.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// `train`: an object whose kinds and ranges have been checked; `model` may be nullptr. Error in
// `report`: something for routers that the model has none of. The loss of routers that a model's
// file asks for is that of the run.
TrainOptions read_train(const JsonValue& train, const Transformer* model, JsonReport& report);
// What the auxiliary loss of a run's routers balances; `model` may be nullptr.
RouterBalance router_balance(const TrainOptions& train, const Transformer* model);

}  // namespace rehearse
