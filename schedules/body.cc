#include "schedules/body.h"

#include "schedules/body_framework.h"
#include "schedules/body_rehearse.h"

namespace rehearse {

Body make_body(const BodyShape& shape) {
  return shape.plan->runtime == Runtime::Rehearse ? make_rehearse_body(shape)
                                                  : make_framework_body(shape);
}

}  // namespace rehearse
