// SPDX-License-Identifier: Apache-2.0
// The router's kernels and the orders of rows, as kernel_rows.inc has them: compiled once, whatever
// the instruction set, so that all choose the same experts.
#pragma once

#include <cstdint>

#include "exec/backend/shapes.h"

namespace rehearse::exec {

void route(const RouteShape& shape, const float* logits, std::int32_t* chosen, float* weights,
           float* scores, float* logsum);
template <class Element>
void route_backward(const RouteShape& shape, const float* d_weights, const std::int32_t* chosen,
                    const float* weights, const float* scores, const float* logsum,
                    const float* counts, Element* d_logits);
void count_chosen(std::int64_t copies, std::int64_t experts, const std::int32_t* chosen,
                  float* counts);
void drop_copies(const DropShape& shape, const std::int32_t* chosen, const float* weights,
                 std::int32_t* kept);
void count_dropped(const DropShape& shape, const std::int32_t* chosen, const std::int32_t* kept,
                   double* dropped);
void sort_copies(const CopiesShape& shape, const std::int32_t* chosen, std::int32_t* row,
                 std::int32_t* token, std::int32_t* begin);
void sort_rows(const ArrivedShape& shape, const std::int32_t* begins, std::int32_t* from,
               std::int32_t* begin);
void count_choices(const CountShape& shape, std::int64_t copies, const std::int32_t* chosen,
                   double* most);
void count_not_finite(std::int64_t count, const float* x, double* found);
void count_rows(const CountShape& shape, const std::int32_t* begin, double* rows, double* most);
void sort_visits(const VisitsShape& shape, const std::int32_t* chosen, std::int32_t* token,
                 std::int32_t* sent, std::int32_t* row, std::int32_t* weight, std::int32_t* begins,
                 std::int32_t* arrived);

}  // namespace rehearse::exec
