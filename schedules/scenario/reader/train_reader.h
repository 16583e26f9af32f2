// SPDX-License-Identifier: Apache-2.0
// The keys of `train`.
#pragma once

#include "schedules/base/json_reader.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// `train`: an object whose kinds and ranges have been checked; `model` may be nullptr. Error in
// `report`: something for routers that the model has none of.
TrainOptions read_train(const JsonValue& train, const Transformer* model, Optimizer optimizer,
                        JsonReport& report);
// What the auxiliary loss of a run's routers balances.
RouterBalance router_balance(const TrainOptions& train);

}  // namespace rehearse
