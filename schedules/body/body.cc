// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body.h"

#include "schedules/body/body_framework.h"
#include "schedules/body/body_rehearse.h"

namespace rehearse {

Body make_body(const Layout& layout, const BodyShape& shape) {
  return layout.plan.runtime.own_executor ? make_rehearse_body(layout, shape)
                                          : make_framework_body(layout, shape);
}

}  // namespace rehearse
