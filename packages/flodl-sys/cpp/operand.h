// A block of memory that a Python caller handed over: a buffer, or an (address, length) pair.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace flodl {

enum class Access { read, write };

// Keeps an exported buffer alive and locked; create and destroy it while holding the GIL.
class Operand {
   public:
    // `name` is the argument's name in messages; `formats` lists the accepted struct codes.
    Operand(pybind11::handle source, std::string name, const char* formats, std::size_t item_bytes,
            Access access);
    ~Operand();
    Operand(Operand&& other) noexcept;
    Operand(const Operand&) = delete;
    Operand& operator=(const Operand&) = delete;
    Operand& operator=(Operand&&) = delete;

    template <typename Element>
    Element* as() const {
        return static_cast<Element*>(data_);
    }
    std::size_t count() const { return count_; }
    const std::string& name() const { return name_; }

    void require_count(const Operand& other) const;
    // Identical memory is fine when `same_is_fine`; sharing a part of it never is.
    void require_apart(const Operand& other, bool same_is_fine) const;

   private:
    void from_pair(const pybind11::tuple& pair);
    void from_buffer(pybind11::handle source, const char* formats, Access access);

    std::string name_;
    std::size_t item_bytes_;
    void* data_ = nullptr;
    std::size_t count_ = 0;
    Py_buffer view_{};  // view_.obj stays null for a pair
};

// An argument that cannot be used; becomes flodl_sys.errors.KernelArgumentError.
class ArgumentError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace flodl
