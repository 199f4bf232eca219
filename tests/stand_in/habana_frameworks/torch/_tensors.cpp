// The device "hpu" of torch on machines without one. Its tensors lie in the host's memory, and each operation runs on
// the CPU, on tensors that share that memory. To torch they are tensors of another device, as those of Intel's bridge
// are: what mixes them with tensors of the CPU is refused.

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>
#include <torch/version.h>
#include <unistd.h>

#include <future>
#include <thread>
#include <unordered_set>

#include "_device.hpp"

// The type that torch means by "hpu": in 2.7 Intel's own, later the one with this name. Which accelerator there is, torch
// asks the hooks of the latter: with hooks of Intel's type, its wheel for CUDA finds two and fails.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 8
#define TYPE HPU
#define AUTOCAST AutocastHPU
#else
#define TYPE PrivateUse1
#define AUTOCAST AutocastPrivateUse1
#endif

namespace {

using at::Tensor;
using c10::DeviceType;
using c10::IValue;

const c10::Device kDevice(DeviceType::TYPE, 0);

// ---- Who uses the device must have a module. Python acquires it, and writes why not into the text.

using Acquire = bool (*)(char* why_not);
Acquire acquire = nullptr;

void use_device() {
  static pid_t owner = 0;
  TORCH_CHECK(!device::lost, "synStatus=26 [Generic failure] the device is lost: its memory was full");
  if (owner == getpid()) return;
  char why_not[1000];
  TORCH_CHECK(acquire(why_not), why_not);
  owner = getpid();
}

// ---- Tensors of either device on the same memory.

template <typename Memory>
struct Held {  // memory that counts as the device's while a tensor has it
  Memory memory;
  size_t bytes;
  Held(Memory held, size_t size) : memory(std::move(held)), bytes(size) { device::hold(bytes); }
  ~Held() { device::release(bytes); }
  static void forget(void* held) { delete static_cast<Held*>(held); }
};

c10::DataPtr pointer_to(const c10::Storage& memory, c10::Device device) {
  const auto bytes = device == kDevice ? memory.nbytes() : 0;
  using HeldStorage = Held<c10::Storage>;
  return {const_cast<void*>(memory.data()), new HeldStorage(memory, bytes), &HeldStorage::forget, device};
}

c10::Storage sharing(const c10::Storage& memory, c10::Device device) {
  auto* allocator = c10::GetAllocator(device.type());
  return {c10::Storage::use_byte_size_t(), memory.nbytes(), pointer_to(memory, device), allocator, true};
}

// The bridge refuses the first in its words, the second on a Gaudi 1 only. It keeps and computes the third as float32 and
// says nothing: here that is an error.
void check_type(at::ScalarType type) {
  TORCH_CHECK(!c10::isComplexType(type), "Complex datatype is not supported on HPU device.");
  const auto* chip = type == at::kHalf ? std::getenv("HABANA_STAND_IN_CHIP") : nullptr;
  TORCH_CHECK(!chip || std::strcmp(chip, "GAUDI") != 0, "float16/half is not supported on Gaudi.");
  TORCH_CHECK(type != at::kDouble, "float64 on an HPU, which would compute it as float32: convert it before");
}

Tensor laid_out_as(const Tensor& other, c10::Storage memory, c10::DispatchKey key) {
  if (key == c10::DispatchKey::TYPE) check_type(other.scalar_type());
  auto keys = c10::DispatchKeySet(key);
  // As a tensor of Intel's has: with it a parameter that is moved to the device stays the same parameter.
  if (key == c10::DispatchKey::TYPE) keys = keys | c10::DispatchKeySet(c10::BackendComponent::HPUBit);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(memory), keys, other.dtype());
  auto* made = tensor.unsafeGetTensorImpl();
  made->set_sizes_and_strides(other.sizes(), other.strides(), other.storage_offset());
  return tensor;
}

Tensor on_host(const Tensor& tensor) {
  if (tensor.device().type() != DeviceType::TYPE) return tensor;
  return laid_out_as(tensor, sharing(tensor.storage(), c10::kCPU), c10::DispatchKey::CPU);
}

template <typename Change>
IValue with_tensors(const IValue& value, const Change& change) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (!value.isList() || value.isIntList() || value.isBoolList() || value.isDoubleList()) return value;
  auto list = value.toList().copy();
  for (const auto i : c10::irange(list.size())) list.set(i, with_tensors(list.get(i), change));
  return list;
}

// ---- Any operation, on the CPU.

void in_hccl(IValue& value) {  // hccl's group knows tensors of HPUs only; on the host gloo does its work
  auto group = value.toCustomClass<c10d::ProcessGroup>();
  auto twin = c10::make_intrusive<c10d::ProcessGroup>(group->getRank(), group->getSize());
  twin->setBackend(DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, group->getBackend(DeviceType::TYPE));
  value = IValue(twin);
}

void check_reduction(const IValue& value) {
  using Kind = c10d::ReduceOp::RedOpType;
  const auto kind = value.toCustomClass<c10d::ReduceOp>()->op_;
  TORCH_CHECK(kind == Kind::SUM || kind == Kind::PRODUCT || kind == Kind::MIN || kind == Kind::MAX,
              "Unsupported ReduceOp for HCCL process group");
}

// The bridge converts what hccl does not know to float32, sums, and converts it back, and says nothing.
void check_summed(const IValue& value) {
  with_tensors(value, [](const Tensor& tensor) {
    const bool whole = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) && tensor.numel() > 0;
    TORCH_CHECK(!whole || tensor.abs().max().item<int64_t>() <= (1 << 24),
                "hccl would sum these integers as float32, which has 24 bits: gather them, or sum parts of them");
    return tensor;
  });
}

void compute(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const auto& schema = operation.schema();
  const auto& called = schema.name();
  const bool flat = called[0] == 'c' && (called == "c10d::_allgather_base_" || called == "c10d::_reduce_scatter_base_");
  const bool sums = called[0] == 'c' && called.rfind("c10d::allreduce", 0) == 0;
  const auto first = stack->size() - schema.arguments().size();
  std::vector<std::pair<Tensor, Tensor>> shared;  // of the device, and on the host
  use_device();
  device::run(operation, stack->data() + first);
  for (auto i = first; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    const auto name = [&] { return schema.arguments()[i - first].name(); };
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    if (value.isCustomClass() && name() == "process_group") in_hccl(value);
    if (value.isCustomClass() && name() == "reduce_op") check_reduction(value);
    const bool may_be_mixed = value.isList() && name() == "indices";  // x[...] takes those of the CPU, too
    value = with_tensors(value, [&](const Tensor& tensor) {
      const bool mixes = tensor.device().type() != DeviceType::TYPE;
      TORCH_CHECK(!mixes || tensor.dim() == 0 || may_be_mixed, "Expected all tensors to be on the same device, but ", schema.name(),
                  " got one on ", tensor.device(), " and others on hpu:0");
      if (mixes) return tensor;
      shared.emplace_back(tensor, on_host(tensor));
      // hccl looks at sizes in bytes, gloo at shapes.
      return flat ? shared.back().second.view({-1}) : shared.back().second;
    });
    if (sums) check_summed(value);
  }
  operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto& [device, host] : shared) {  // the operation may have resized what it was given
    auto* memory = device.storage().unsafeGetStorageImpl();
    if (memory->data() != host.storage().data() || memory->nbytes() != host.storage().nbytes()) {
      memory->set_data_ptr_noswap(pointer_to(host.storage(), kDevice));
      memory->set_nbytes(host.storage().nbytes());
    }
    if (device.sizes() != host.sizes() || device.strides() != host.strides())
      device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
  for (auto i = stack->size() - schema.returns().size(); i < stack->size(); ++i)
    (*stack)[i] = with_tensors((*stack)[i], [&](const Tensor& tensor) {
      for (const auto& [device, host] : shared)
        if (tensor.is_same(host)) return device;
      for (const auto& [device, host] : shared)
        if (tensor.storage().is_alias_of(host.storage()))
          return laid_out_as(tensor, device.storage(), c10::DispatchKey::TYPE);
      return laid_out_as(tensor, sharing(tensor.storage(), kDevice), c10::DispatchKey::TYPE);
    });
}

// ---- What an operation of the CPU does not do.

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  use_device();
  const bool to_device = to.device() == kDevice;
  if (from.device() == to.device()) {
    if (!device::inside_graph) device::launch();
  } else {
    device::copy(from.nbytes(), to_device, /*blocks=*/!to_device || !non_blocking);  // the host reads what it gets
  }
  on_host(to).copy_(on_host(from));
  return to;
}

Tensor& set_storage(Tensor& self, c10::Storage memory, int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(memory));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return self;
}

Tensor& set_whole_storage(Tensor& self, c10::Storage memory) {
  const auto size = static_cast<int64_t>(memory.nbytes() / self.itemsize());
  return set_storage(self, std::move(memory), 0, {size}, {1});
}

Tensor& set_tensor(Tensor& self, const Tensor& other) {
  return set_storage(self, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                   int64_t groups) {
  static auto operation = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  torch::jit::Stack stack{input, weight, bias, stride, padding, dilation, transposed, output_padding, groups};
  compute(operation, &stack);
  return stack[0].toTensor();
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& input, const Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  static auto operation = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  const std::vector<int64_t> bias_sizes{gradient.size(1)};
  torch::jit::Stack stack{gradient, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,
                          groups, c10::List<bool>({mask[0], mask[1], mask[2]})};
  compute(operation, &stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

template <c10::ScalarType type>
void cast(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard below_autocast(c10::DispatchKey::AUTOCAST);
  const auto wanted = type == at::kFloat ? type : at::autocast::get_autocast_dtype(DeviceType::TYPE);
  for (auto i = stack->size() - operation.schema().arguments().size(); i < stack->size(); ++i)
    (*stack)[i] = with_tensors((*stack)[i], [&](const Tensor& tensor) {
      return at::autocast::cached_cast(wanted, tensor, DeviceType::TYPE);
    });
  operation.callBoxed(stack);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    use_device();
    using HeldPointer = Held<c10::DataPtr>;
    auto* held = new HeldPointer(c10::GetAllocator(c10::kCPU)->allocate(size), size);
    return {held->memory.get(), held, &HeldPointer::forget, kDevice};
  }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }
} allocator;

struct Pinned final : c10::Allocator {  // memory of the host that the bridge asks the device for
  static inline std::mutex mutex;
  static inline std::unordered_set<const void*> all;
  static void forget(void* memory) {
    const std::lock_guard<std::mutex> guard(mutex);
    all.erase(memory);
    std::free(memory);
  }
  c10::DataPtr allocate(size_t size) override {
    use_device();
    auto* memory = std::malloc(std::max<size_t>(size, 1));
    const std::lock_guard<std::mutex> guard(mutex);
    all.insert(memory);
    return {memory, memory, &forget, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }
} pinned;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return kDevice.type(); }
  c10::Device getDevice() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

struct Hooks final : at::PrivateUse1HooksInterface {  // backward asks them which accelerator there is
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
  bool isPinnedPtr(const void* memory) const override {
    const std::lock_guard<std::mutex> guard(Pinned::mutex);
    return Pinned::all.count(memory) > 0;
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto grown = allocator.allocate(size);
    std::memcpy(grown.get(), storage.data(), std::min(size, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(grown));
    storage.set_nbytes(size);
  }
} hooks;

REGISTER_ALLOCATOR(DeviceType::TYPE, &allocator);
C10_REGISTER_GUARD_IMPL(TYPE, Guard);

TORCH_LIBRARY_IMPL(_, TYPE, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

void record_stream(Tensor&, c10::Stream) {}  // the stand-in's queues have done all they were given

TORCH_LIBRARY_IMPL(aten, TYPE, library) {
  library.impl("_copy_from", copy_from);
  library.impl("record_stream", record_stream);
  library.impl("mse_loss", torch::CppFunction::makeFromBoxedFunction<&compute>());  // its usual way here warns
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("convolution_overrideable", convolution);
  library.impl("convolution_backward_overrideable", convolution_backward);
}

TORCH_LIBRARY_IMPL(_, AUTOCAST, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AUTOCAST, library) {
  // From the bridge's lists (hpu_ops/autocast_helpers.h), which are not those of a GPU.
  for (const auto* name : {"addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "dot", "dropout", "layer_norm",
                           "linear", "log_softmax.int", "matmul", "mean", "mean.dim", "mm", "mul.Tensor", "mv",
                           "scaled_dot_product_attention", "softmax.int"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast<at::kBFloat16>>());
  for (const auto* name : {"binary_cross_entropy_with_logits", "cross_entropy_loss", "div.Tensor", "embedding", "mse_loss",
                           "nll_loss", "pow.Tensor_Scalar", "rsqrt"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast<at::kFloat>>());
}

}  // namespace

// Intel's bridge has kernels of many tensors at once. Otherwise torch would take one tensor after the other.
void take_many_at_once() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::TYPE, __FILE__, __LINE__);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
    if (device::starts_with(name.name, "aten::_foreach_")) {
      const auto own = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
      library.impl(own.c_str(), torch::CppFunction::makeFromBoxedFunction<&compute>());
    }
}

extern "C" void start(Acquire function, device::Settings settings) {
  acquire = function;
  device::settings = settings;
  take_many_at_once();
  at::RegisterPrivateUse1HooksInterface(&hooks);
  struct : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;  // torch has kernels of its own, which ask the group's backend; gloo's takes no tensors of a device
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  static torch::Library collectives(torch::Library::IMPL, "c10d", c10::DispatchKey::TYPE, __FILE__, __LINE__);
  for (const auto* name : {"_allgather_base_", "_reduce_scatter_base_", "allgather_", "allgather_into_tensor_coalesced_",
                           "allreduce_", "allreduce_coalesced_", "alltoall_", "alltoall_base_", "barrier", "broadcast_",
                           "gather_", "recv_", "recv_any_source_", "reduce_", "reduce_scatter_",
                           "reduce_scatter_tensor_coalesced_", "scatter_", "send"})
    collectives.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute>());
}

// Waits until autograd's thread of the device is through with the last backward pass. It still has that pass's Python
// context when the caller of backward() goes on, and torch (2.15) aborts the process if the thread lets go of it while
// Python (before 3.14) ends: "terminate called without an active exception". The thread takes one pass after the other,
// and this one has nothing of Python. One that is stuck is not waited for.
extern "C" void finish() {
  if (device::lost) return;
  std::promise<void> through;
  auto done = through.get_future();
  std::thread([through = std::move(through)]() mutable {
    at::ones({}, at::device(kDevice)).requires_grad_().backward();
    through.set_value();
  }).detach();
  done.wait_for(std::chrono::seconds(5));
}

extern "C" void wait() { device::wait(); }

extern "C" double compile(double seconds) { return device::compile(seconds); }

// Around a graph, or an operation of Intel's own, which Python describes by a number.
extern "C" void enter_graph() {
  if (!device::inside_graph++) device::launch();
}

extern "C" void leave_graph() { --device::inside_graph; }

extern "C" void compile_operation(uint64_t recipe) {
  if (!device::settings.lazy) device::compile_once(recipe);
}

extern "C" void count(int64_t* into) {
  const auto& counts = device::counts;
  for (const auto* counted : {&counts.launches, &counts.waits, &counts.bytes_to_device, &counts.bytes_to_host,
                              &counts.memory, &counts.most_memory})
    *into++ = *counted;
}

extern "C" int64_t count_compilations(double* seconds) {
  const std::lock_guard<std::mutex> guard(device::mutex);
  int64_t ended = 0;
  for (const auto& compilation : device::compilations)
    if (compilation.end <= device::now()) {
      *seconds += compilation.seconds;
      ++ended;
    }
  return ended;
}
