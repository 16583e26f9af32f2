// SPDX-License-Identifier: Apache-2.0
// Documents packed into sequences: attention does not cross them, so sequences differ in work, and
// the rank with the longest documents decides.
#pragma once

#include <cstdint>

namespace rehearse {

// Work of the busiest of `ranks` over the mean's, each with `sequences` of `length` tokens between
// two meetings, packed with documents of exponential lengths with scale `document` (the mean of
// those that nothing cuts), cut at `longest` (0: at nothing) and at the ends.
// Mean, deviation and skewness of a sequence are drawn (4,096 sequences, always the same); the
// largest of many sums is that of normals with their skewness (Cornish and Fisher, 1938; Blom's
// plotting position), and no more than a sequence of one document.
double busiest_documents(double document, std::int64_t length, std::int32_t ranks,
                         std::int64_t sequences, std::int64_t longest = 0);

}  // namespace rehearse
