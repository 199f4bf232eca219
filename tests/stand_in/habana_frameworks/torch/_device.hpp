// What makes a device more than memory: it works while the host goes on, it compiles what it has not run before, in
// several threads, and its memory can be full. Its time is simulated: only who waits for the device sleeps.

#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace device {

struct Settings {
  double operation_s;  // that each operation or graph takes on the device
  double eager_compile_s;  // that the first run of an operation with these shapes and constants takes
  int64_t memory_bytes;
  bool lazy;
} settings;

struct Counts {
  std::atomic<int64_t> launches{0}, waits{0}, bytes_to_device{0}, bytes_to_host{0}, memory{0}, most_memory{0};
} counts;

std::atomic<bool> lost{false};
thread_local int inside_graph = 0;  // its operations were compiled with it

// ---- The queue and the compiler.

constexpr int kCompilerThreads = 8;  // PT_HPU_COMPILE_THREAD_POOL_SIZE, by default
struct Compilation {
  double end, seconds;
};
std::mutex mutex;
double busy_until = 0;  // on the clock that Python calls monotonic
std::array<double, kCompilerThreads> compiler_busy_until{};
std::vector<Compilation> compilations;
std::unordered_set<size_t> eager_recipes;

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void keep_busy(double seconds) {
  const std::lock_guard<std::mutex> guard(mutex);
  busy_until = std::max(busy_until, now()) + seconds;
}

// The device is ready for what comes after it in the queue when the compilation is through; the host goes on.
inline double compile(double seconds) {
  const std::lock_guard<std::mutex> guard(mutex);
  auto& free = *std::min_element(compiler_busy_until.begin(), compiler_busy_until.end());
  free = std::max(free, now()) + seconds;
  busy_until = std::max(busy_until, free);
  compilations.push_back({free, seconds});
  return free;
}

inline void launch() {
  ++counts.launches;
  keep_busy(settings.operation_s);
}

inline void wait() {
  ++counts.waits;
  double seconds;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    seconds = busy_until - now();
  }
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

inline void copy(size_t bytes, bool to_device, bool blocks) {
  (to_device ? counts.bytes_to_device : counts.bytes_to_host) += static_cast<int64_t>(bytes);
  if (blocks) wait();
}

// ---- Operations that are not in a graph.

inline size_t mixed(size_t so_far, size_t value) { return (so_far ^ value) * 0x100000001b3ULL + 0x9e3779b9; }

inline size_t mixed(size_t so_far, const c10::IValue& value) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined()) return mixed(so_far, size_t{1});
    so_far = mixed(so_far, static_cast<size_t>(tensor.scalar_type()) + 100);
    for (const auto size : tensor.sizes()) so_far = mixed(so_far, static_cast<size_t>(size));
    for (const auto stride : tensor.strides()) so_far = mixed(so_far, static_cast<size_t>(stride));
    return so_far;
  }
  if (value.isList()) {
    for (const auto& item : value.toListRef()) so_far = mixed(so_far, item);
    return mixed(so_far, size_t{2});
  }
  if (value.isInt()) return mixed(so_far, static_cast<size_t>(value.toInt()) + 3);
  if (value.isDouble()) return mixed(so_far, std::hash<double>()(value.toDouble()));
  if (value.isBool()) return mixed(so_far, size_t{value.toBool()} + 4);
  if (value.isString()) return mixed(so_far, std::hash<std::string>()(value.toStringRef()));
  return mixed(so_far, size_t{6});
}

inline void compile_once(size_t recipe) {
  {
    const std::lock_guard<std::mutex> guard(mutex);
    if (!eager_recipes.insert(recipe).second) return;
  }
  compile(settings.eager_compile_s);
}

inline bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// Views and new memory are the host's business.
inline bool is_launched(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  const auto* alias = results.empty() ? nullptr : results[0].alias_info();
  return !(alias && !alias->isWrite()) && !starts_with(schema.name(), "aten::empty") &&
         !starts_with(schema.name(), "aten::new_empty") && !starts_with(schema.name(), "aten::resize_");
}

// The host needs a number, or a size that depends on numbers.
inline bool waits(const c10::FunctionSchema& schema, const c10::IValue* arguments) {
  const auto& name = schema.name();
  for (const auto* waiting : {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2",
                              "aten::unique_dim", "aten::equal"})
    if (name == waiting) return true;
  if (name != "aten::index" || !arguments[1].isList()) return false;
  for (const auto& index : arguments[1].toListRef())
    if (index.isTensor() && index.toTensor().defined() && index.toTensor().scalar_type() == at::kBool) return true;
  return false;
}

// Counts an operation, and what it costs, before it runs.
inline void run(const c10::OperatorHandle& operation, const c10::IValue* arguments) {
  const auto& schema = operation.schema();
  if (inside_graph || !is_launched(schema)) return;
  if (waits(schema, arguments)) {
    if (schema.name() == "aten::_local_scalar_dense")
      return copy(arguments[0].toTensor().itemsize(), /*to_device=*/false, /*blocks=*/true);
    wait();
  }
  if (!settings.lazy && starts_with(schema.name(), "aten::")) {
    auto recipe = std::hash<std::string>()(schema.name() + "." + schema.overload_name());
    for (size_t i = 0; i < schema.arguments().size(); ++i) recipe = mixed(recipe, arguments[i]);
    compile_once(recipe);
  }
  launch();
}

// ---- Memory that tensors hold.

inline void hold(size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  if (counts.memory + bytes > settings.memory_bytes) {
    lost = true;
    TORCH_CHECK(false, "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::", bytes, " (", bytes >> 20, ")MB");
  }
  const auto held = counts.memory += bytes;
  auto most = counts.most_memory.load();
  while (most < held && !counts.most_memory.compare_exchange_weak(most, held)) {
  }
}

inline void release(size_t bytes) { counts.memory -= static_cast<int64_t>(bytes); }

}  // namespace device
