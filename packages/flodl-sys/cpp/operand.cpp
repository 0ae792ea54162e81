#include "operand.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace py = pybind11;

namespace flodl {

Operand::Operand(py::handle source, std::string name, const char* formats, std::size_t item_bytes,
                 Access access)
    : name_(std::move(name)), item_bytes_(item_bytes) {
    if (py::isinstance<py::tuple>(source))
        from_pair(py::reinterpret_borrow<py::tuple>(source));
    else
        from_buffer(source, formats, access);
}

Operand::~Operand() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

Operand::Operand(Operand&& other) noexcept
    : name_(std::move(other.name_)),
      item_bytes_(other.item_bytes_),
      data_(other.data_),
      count_(other.count_),
      view_(other.view_) {
    other.view_.obj = nullptr;
}

void Operand::from_pair(const py::tuple& pair) {
    if (pair.size() != 2)
        throw ArgumentError(name_ + " is a tuple of " + std::to_string(pair.size()) +
                            " values, not (address, length)");
    const auto address = PyLong_AsSize_t(pair[0].ptr());
    const auto count = PyErr_Occurred() ? 0 : PyLong_AsSize_t(pair[1].ptr());
    if (PyErr_Occurred()) {
        PyErr_Clear();
        throw ArgumentError(name_ + " is " + py::repr(pair).cast<std::string>() +
                            ", not (address, length) as two integers >= 0");
    }
    if (count > PTRDIFF_MAX / item_bytes_ || (address == 0 && count > 0) ||
        address > UINTPTR_MAX - count * item_bytes_)
        throw ArgumentError(name_ + " is " + py::repr(pair).cast<std::string>() +
                            ": no memory can be there");
    data_ = reinterpret_cast<void*>(address);
    count_ = count;
}

void Operand::from_buffer(py::handle source, const char* formats, Access access) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (access == Access::write ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(source.ptr(), &view_, flags) != 0) {
        view_.obj = nullptr;
        const py::error_already_set reason;
        if (!reason.matches(PyExc_TypeError) && !reason.matches(PyExc_BufferError) &&
            !reason.matches(PyExc_ValueError))
            throw reason;
        throw ArgumentError(name_ + " gives no " + (access == Access::write ? "writable " : "") +
                            "contiguous memory: " + py::str(reason.value()).cast<std::string>());
    }
    const char* format = view_.format == nullptr ? "B" : view_.format;
    const char* code = format + (std::strchr("@=<", format[0]) != nullptr ? 1 : 0);
    const bool known = std::strlen(code) == 1 && std::strchr(formats, code[0]) != nullptr;
    if (!known || static_cast<std::size_t>(view_.itemsize) != item_bytes_) {
        const std::string message = name_ + " has elements of format '" + format + "' (" +
                                    std::to_string(view_.itemsize) + " bytes), not one of '" +
                                    formats + "' (" + std::to_string(item_bytes_) + " bytes)";
        PyBuffer_Release(&view_);
        throw ArgumentError(message);
    }
    data_ = view_.buf;
    count_ = static_cast<std::size_t>(view_.len) / item_bytes_;
}

void Operand::require_count(const Operand& other) const {
    if (count_ != other.count_)
        throw ArgumentError(name_ + " has " + std::to_string(count_) + " elements, " +
                            other.name_ + " has " + std::to_string(other.count_));
}

void Operand::require_apart(const Operand& other, bool same_is_fine) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    const auto other_begin = reinterpret_cast<std::uintptr_t>(other.data_);
    const auto end = begin + count_ * item_bytes_;
    const auto other_end = other_begin + other.count_ * other.item_bytes_;
    if (begin >= other_end || other_begin >= end) return;
    if (same_is_fine && begin == other_begin && end == other_end) return;
    throw ArgumentError(name_ + " and " + other.name_ + " share " +
                        (same_is_fine ? "a part of their memory: give the same block or two that "
                                        "do not overlap"
                                      : "memory: the result needs a block of its own"));
}

}  // namespace flodl
