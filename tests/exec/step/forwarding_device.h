// SPDX-License-Identifier: Apache-2.0
// A device that hands every call on: a test overrides those in which it plants a fault.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "exec/backend/device.h"

namespace rehearse::exec {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  bool asynchronous() const override { return inner_->asynchronous(); }
  void begin_step() override { inner_->begin_step(); }
  void begin(Lane lane, OpId op, std::span<const OpId> waits) override {
    inner_->begin(lane, op, waits);
  }
  void begin_behind(Lane lane, OpId begun) override { inner_->begin_behind(lane, begun); }
  void end(Lane lane, OpId op) override { inner_->end(lane, op); }
  void order(Lane lane, Lane after) override { inner_->order(lane, after); }
  bool launch_graph(Lane lane, OpId op) override { return inner_->launch_graph(lane, op); }
  bool capture_failed(Lane lane, OpId op) override { return inner_->capture_failed(lane, op); }
  Result<> end_step() override { return inner_->end_step(); }
  bool times(std::int32_t rank, OpId op, Nanoseconds* start, Nanoseconds* end) override {
    return inner_->times(rank, op, start, end);
  }
  Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) override {
    return inner_->allocate(rank, bytes);
  }
  Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) override {
    return inner_->allocate_host(rank, bytes);
  }
  void write(std::byte* to, const void* from, std::int64_t bytes) override {
    inner_->write(to, from, bytes);
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) override {
    inner_->read(to, from, bytes);
  }
  void clear(Lane lane, void* to, std::int64_t bytes) override { inner_->clear(lane, to, bytes); }
  void fetch(Lane lane, void* to, const void* host, std::int64_t bytes) override {
    inner_->fetch(lane, to, host, bytes);
  }
  void offload(Lane lane, void* host, const void* from, std::int64_t bytes) override {
    inner_->offload(lane, host, from, bytes);
  }
  void to_host(Lane lane, std::byte* host, const std::byte* from, std::int64_t bytes) override {
    inner_->to_host(lane, host, from, bytes);
  }
  void from_host(Lane lane, std::byte* to, const std::byte* host, std::int64_t bytes) override {
    inner_->from_host(lane, to, host, bytes);
  }
  void transfer(Lane from_lane, const void* from, Lane to_lane, void* to,
                std::int64_t bytes) override {
    inner_->transfer(from_lane, from, to_lane, to, bytes);
  }
  void exchange(const Exchange& exchange) override { inner_->exchange(exchange); }

 protected:
  std::unique_ptr<Device> inner_;
};

}  // namespace rehearse::exec
