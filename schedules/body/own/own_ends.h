// SPDX-License-Identifier: Apache-2.0
// The ends of a model in our executor: embedding, and head with the loss.
#pragma once

#include "schedules/body/own/own_context.h"

namespace rehearse::own {

Body embedding_forward(const Context& c);
Body embedding_backward(const Context& c);
Body head_forward(const Context& c);
Body head_backward(const Context& c);
// A head whose outputs one rank gathers, in three bodies: up to the logits, from their gradients,
// and between.
Body logits_forward(const Context& c);
Body logits_backward(const Context& c);
Body loss_of_logits(const Context& c);

}  // namespace rehearse::own
