// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body.h"

#include "schedules/body/body_framework.h"
#include "schedules/body/body_rehearse.h"

namespace rehearse {

Body make_body(const BodyShape& shape) {
  return shape.plan->runtime.own_executor ? make_rehearse_body(shape) : make_framework_body(shape);
}

}  // namespace rehearse
