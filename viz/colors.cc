#include "viz/colors.h"

namespace rehearse::viz {
namespace {

constexpr Color kOrange{230, 159, 0}, kSkyBlue{86, 180, 233}, kGreen{0, 158, 115},
    kYellow{240, 228, 66}, kBlue{0, 114, 178}, kVermilion{213, 94, 0}, kPurple{204, 121, 167},
    kGrey{153, 153, 153};

}  // namespace

Color color_of(OpKind kind) {
  switch (kind) {
    case OpKind::Forward: return kBlue;
    case OpKind::Backward:
    case OpKind::InputGradient: return kOrange;
    case OpKind::WeightGradient: return kYellow;
    case OpKind::Recompute: return kSkyBlue;
    case OpKind::Overlap: return kVermilion;
    case OpKind::Send:
    case OpKind::Recv:
    case OpKind::Pass: return kGreen;
    case OpKind::OptimizerStep:
    case OpKind::GradNorm:
    case OpKind::Add: return kGrey;
    default: return kPurple;  // collectives and copies
  }
}

}  // namespace rehearse::viz
