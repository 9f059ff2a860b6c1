// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/joined_rows.hpp"

namespace maestro::cpu {

namespace {

/// A row's sums besides those for support tokens and the rest.
constexpr std::int64_t sums_per_row = 7;

std::span<float> up_to(float* first, const float* end) {
  return {first, static_cast<std::size_t>(end - first)};
}

}  // namespace

JoinedRows::JoinedRows(Communicator* group, const RowLoss& loss, Tokens own, Size size, ScratchPool::Lease& lease)
    : group_(group), loss_(&loss), own_(own), rest_(size.rest) {
  if (group != nullptr) values_ = lease.floats(size.rows * (sums_per_row + size.support + (size.rest ? 1 : 0)));
}

std::int64_t JoinedRows::values_of(const RowState& row) const {
  return sums_per_row + static_cast<std::int64_t>(row.support.size()) + (rest_ ? 1 : 0);
}

void JoinedRows::offer_scan(const RowState& row, float* to) const {
  const bool target = owns(row.target);  // zeros of the other ranks leave the sum unchanged
  to[0] = static_cast<float>(row.z_t);
  to[1] = static_cast<float>(row.z_one);
  to[2] = target ? row.z_target : 0;
  to[3] = static_cast<float>(row.u_t);
  to[4] = static_cast<float>(row.u_one);
  to[5] = target ? row.u_target : 0;
  to[6] = static_cast<float>(row.cross);
  to += sums_per_row;
  for (const SupportToken& token : row.support) *to++ = owns(token.column) ? token.z : 0;
  if (rest_) *to = static_cast<float>(row.rest_one);
}

void JoinedRows::take_scan(RowState& row, const float* from) const {
  row.z_t = from[0];
  row.z_one = from[1];
  row.z_target = from[2];
  row.u_t = from[3];
  row.u_one = from[4];
  row.u_target = from[5];
  row.cross = from[6];
  from += sums_per_row;
  for (SupportToken& token : row.support) token.z = *from++;
  if (rest_) row.rest_one = *from;
}

void JoinedRows::join_scans(std::span<RowState> rows) const {
  if (group_ == nullptr) return;
  float* at = values_;
  for (const RowState& row : rows) {
    *at++ = row.z_max;
    *at++ = row.u_max;
    if (rest_) *at++ = row.rest_max;
  }
  group_->all_reduce_max(up_to(values_, at));
  at = values_;
  for (RowState& row : rows) {
    loss_->move_maxima(row, at[0], at[1]);
    at += 2;
    if (rest_) RowLoss::move_rest(row, *at++);
  }
  at = values_;
  for (const RowState& row : rows) {
    offer_scan(row, at);
    at += values_of(row);
  }
  group_->all_reduce_sum(up_to(values_, at));
  at = values_;
  for (RowState& row : rows) {
    take_scan(row, at);
    at += values_of(row);
  }
}

void JoinedRows::join_mixtures(std::span<RowState> rows) const {
  if (group_ == nullptr) return;
  float* at = values_;
  for (const RowState& row : rows) {
    *at++ = static_cast<float>(row.mixture_teacher);
    *at++ = static_cast<float>(row.mixture_student);
  }
  group_->all_reduce_sum(up_to(values_, at));
  at = values_;
  for (RowState& row : rows) {
    row.mixture_teacher = *at++;
    row.mixture_student = *at++;
  }
}

}  // namespace maestro::cpu
