// SPDX-License-Identifier: Apache-2.0
// Bodies of our own executor, to the byte: docs/ir.md and tests/data/ir/.
#pragma once

#include "schedules/body/body.h"

namespace rehearse {

// REQUIRES: experts without biases.
Body make_rehearse_body(const Layout& layout, const BodyShape& shape);
// The loss of logits that lie there, and their gradient in their place.
Body make_rehearse_loss(const Layout& layout);

}  // namespace rehearse
