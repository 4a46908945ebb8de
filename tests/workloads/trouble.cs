// Has one trouble of real programs, in methods with known names, until the time is over.
//
//   trouble [--mode gc|lock|pool|sync-over-async|spin|throw|jit|kernel|faults|healthy|idle|deadlock] [--seconds S]
//
// Default: healthy, 10 s. Prints a JSON line "ready" with the pid at the start, and a line "done" with the number
// of rounds of all threads at the end. With UNOPTIMIZED defined, its methods ask for no optimization, as a debug
// build does.
//
// Uses only C# 7 and mscorlib, so that Debian's mcs compiles it and .NET Core 3.1 and later run it.
using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

#if UNOPTIMIZED
[assembly: Debuggable(DebuggableAttribute.DebuggingModes.Default | DebuggableAttribute.DebuggingModes.DisableOptimizations)]
#endif

static class Program
{
    static volatile bool stop;
    static long rounds;

    static int Main(string[] args)
    {
        var all = new Trouble[]
        {
            new Collections(), new Locks(), new Pool(), new SyncOverAsync(), new Spinning(), new Exceptions(),
            new Compilations(), new SystemCalls(), new PageFaults(), new Healthy(), new Idle(), new Deadlock(),
        };
        var name = "healthy";
        var seconds = 10.0;
        for (var i = 0; i < args.Length; i += 2)
        {
            var value = i + 1 < args.Length ? args[i + 1] : "";
            if (args[i] == "--mode")
            {
                name = value;
            }
            else if (args[i] != "--seconds" || !IsPositive(value, out seconds))
            {
                return Usage(all);
            }
        }

        var chosen = Array.Find(all, trouble => trouble.Name == name);
        if (chosen == null)
        {
            return Usage(all);
        }

        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + Libc.GetPid() + "}");
        for (var i = 0; i < chosen.Threads; i++)
        {
            var number = i;
            new Thread(() => Run(chosen, number)) { IsBackground = true, Name = "trouble " + i }.Start();
        }

        Thread.Sleep(TimeSpan.FromSeconds(seconds));
        stop = true;
        Console.WriteLine("{\"event\":\"done\",\"pid\":" + Libc.GetPid() + ",\"rounds\":" + Interlocked.Read(ref rounds) + "}");
        return 0;
    }

    static void Run(Trouble trouble, int thread)
    {
        while (!stop)
        {
            trouble.Round(thread);
            Interlocked.Increment(ref rounds);
        }
    }

    static int Usage(Trouble[] all)
    {
        var modes = Array.ConvertAll(all, trouble => trouble.Name);
        Console.Error.WriteLine("usage: trouble [--mode " + string.Join("|", modes) + "] [--seconds S]");
        return 2;
    }

    static bool IsPositive(string text, out double seconds)
    {
        return double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out seconds) && seconds > 0;
    }
}

/// <summary>Something that threads do in rounds.</summary>
abstract class Trouble
{
    protected Trouble(string name, int threads)
    {
        Name = name;
        Threads = threads;
    }

    public string Name { get; private set; }

    public int Threads { get; private set; }

    public abstract void Round(int thread);
}

/// <summary>Arithmetic. A step takes about a nanosecond in optimized code.</summary>
static class Work
{
    static ulong last;

    public static void Burn(int steps)
    {
        var state = last;
        for (var i = 0; i < steps; i++)
        {
            state = state * 6364136223846793005 + 1442695040888963407;
        }

        last = state;
    }
}

static class Libc
{
    [DllImport("libc", EntryPoint = "getpid")]
    public static extern int GetPid();

    [DllImport("libc", EntryPoint = "read")]
    public static extern IntPtr Read(int file, byte[] buffer, UIntPtr size);

    [DllImport("libc", EntryPoint = "write")]
    public static extern IntPtr Write(int file, byte[] buffer, UIntPtr size);

    [DllImport("libc", EntryPoint = "open")]
    public static extern int Open(string path, int flags);

    [DllImport("libc", EntryPoint = "mmap")]
    public static extern IntPtr Map(IntPtr start, UIntPtr size, int protection, int flags, int file, IntPtr offset);

    [DllImport("libc", EntryPoint = "munmap")]
    public static extern int Unmap(IntPtr start, UIntPtr size);
}

/// <summary>Objects that live long enough to become old, then die.</summary>
sealed class Collections : Trouble
{
    sealed class Order
    {
        public Order Previous;
        public byte[] Lines;
    }

    readonly Order[][] kept = { new Order[100000], new Order[100000] };
    readonly int[] next = new int[2];

    public Collections() : base("gc", 2)
    {
    }

    public override void Round(int thread) { KeepForAWhile(thread); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void KeepForAWhile(int thread)
    {
        var orders = kept[thread];
        for (var i = 0; i < 1000; i++)
        {
            var at = next[thread] = (next[thread] + 7919) % orders.Length;
            var previous = orders[(at + 1) % orders.Length];
            if (previous != null)
            {
                // Or the list would have all orders, and none would die.
                previous.Previous = null;
            }

            orders[at] = new Order { Previous = previous, Lines = new byte[100] };
            orders[(at + 1) % orders.Length] = null;
        }
    }
}

/// <summary>Three threads that work only while they hold the same lock.</summary>
sealed class Locks : Trouble
{
    readonly object gate = new object();

    public Locks() : base("lock", 3)
    {
    }

    public override void Round(int thread) { UpdateTotal(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void UpdateTotal()
    {
        lock (gate)
        {
            Work.Burn(2000000);
        }
    }
}

/// <summary>Work items of the thread pool that wait for something that does not come, and more behind them.</summary>
sealed class Pool : Trouble
{
    readonly ManualResetEvent never = new ManualResetEvent(false);
    long queued;

    public Pool() : base("pool", 1)
    {
    }

    public override void Round(int thread)
    {
        if (Interlocked.Read(ref queued) < 200)
        {
            Interlocked.Increment(ref queued);
            ThreadPool.QueueUserWorkItem(WaitForReply);
        }

        Thread.Sleep(5);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void WaitForReply(object state) { never.WaitOne(); }
}

/// <summary>Work items of the thread pool that block until a task is complete.</summary>
sealed class SyncOverAsync : Trouble
{
    long running;

    public SyncOverAsync() : base("sync-over-async", 1)
    {
    }

    public override void Round(int thread)
    {
        while (Interlocked.Read(ref running) < 16)
        {
            Interlocked.Increment(ref running);
            ThreadPool.QueueUserWorkItem(HandleRequest);
        }

        Thread.Sleep(1);
    }

    void HandleRequest(object state)
    {
        LoadUser();
        Interlocked.Decrement(ref running);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    int LoadUser() { return LoadUserAsync().Result; }

    async Task<int> LoadUserAsync()
    {
        await Task.Delay(2).ConfigureAwait(false);
        Work.Burn(20000);
        return 1;
    }
}

/// <summary>A thread that works, and one that waits for it in a loop.</summary>
sealed class Spinning : Trouble
{
    volatile int turn;

    public Spinning() : base("spin", 2)
    {
    }

    public override void Round(int thread)
    {
        if (thread == 0)
        {
            Work.Burn(5000000);
            turn++;
        }
        else
        {
            WaitForTurn(turn);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void WaitForTurn(int last)
    {
        while (turn == last)
        {
            // A new one each time never gives up its CPU.
            new SpinWait().SpinOnce();
        }
    }
}

/// <summary>Two types of exceptions. Three of four have the same one.</summary>
sealed class Exceptions : Trouble
{
    int count;

    public Exceptions() : base("throw", 1)
    {
    }

    public override void Round(int thread)
    {
        try
        {
            if (count++ % 4 == 0)
            {
                ParseAmount("ten");
            }
            else
            {
                ValidateOrder();
            }
        }
        catch (InvalidOperationException)
        {
        }
        catch (FormatException)
        {
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void ValidateOrder() { throw new InvalidOperationException("no amount"); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ParseAmount(string text) { return int.Parse(text, CultureInfo.InvariantCulture); }
}

/// <summary>A new method for each rule, which is called once.</summary>
sealed class Compilations : Trouble
{
    public Compilations() : base("jit", 1)
    {
    }

    public override void Round(int thread) { CompileRule(); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int CompileRule()
    {
        var method = new DynamicMethod("Rule", typeof(int), new[] { typeof(int) }, typeof(Program));
        var code = method.GetILGenerator();
        code.Emit(OpCodes.Ldarg_0);
        for (var i = 0; i < 200; i++)
        {
            code.Emit(OpCodes.Ldarg_0);
            code.Emit(OpCodes.Mul);
            code.Emit(OpCodes.Ldc_I4, i);
            code.Emit(OpCodes.Add);
        }

        code.Emit(OpCodes.Ret);
        return ((Func<int, int>)method.CreateDelegate(typeof(Func<int, int>)))(3);
    }
}

/// <summary>Reads of 64 KB from /dev/zero, and a few writes of one byte to /dev/null.</summary>
sealed class SystemCalls : Trouble
{
    const int WriteOnly = 1;

    readonly int zero = Libc.Open("/dev/zero", 0);
    readonly int sink = Libc.Open("/dev/null", WriteOnly);
    readonly byte[] buffer = new byte[64 * 1024];

    public SystemCalls() : base("kernel", 1)
    {
    }

    public override void Round(int thread)
    {
        CopyFile();
        WriteLog();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void CopyFile()
    {
        for (var i = 0; i < 100; i++)
        {
            Libc.Read(zero, buffer, (UIntPtr)(uint)buffer.Length);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void WriteLog()
    {
        for (var i = 0; i < 100; i++)
        {
            Libc.Write(sink, buffer, (UIntPtr)1);
        }
    }
}

/// <summary>Memory that is mapped, written once and given back.</summary>
sealed class PageFaults : Trouble
{
    const int Size = 16 << 20;
    const int Page = 4096;
    const int ReadAndWrite = 3;
    const int PrivateAnonymous = 0x22;

    public PageFaults() : base("faults", 1)
    {
    }

    public override void Round(int thread)
    {
        var memory = Libc.Map(IntPtr.Zero, (UIntPtr)Size, ReadAndWrite, PrivateAnonymous, -1, IntPtr.Zero);
        TouchPages(memory);
        Libc.Unmap(memory, (UIntPtr)Size);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void TouchPages(IntPtr memory)
    {
        for (var offset = 0; offset < Size; offset += Page)
        {
            Marshal.WriteByte(memory, offset, 1);
        }
    }
}

/// <summary>Two threads that work half of the time and allocate a little. One of them waits for tasks that work.</summary>
sealed class Healthy : Trouble
{
    static byte[] last;

    public Healthy() : base("healthy", 2)
    {
    }

    public override void Round(int thread)
    {
        if (thread == 0)
        {
            Calculate();
        }
        else
        {
            Parallel.For(0, 2, item => Calculate());
        }

        Thread.Sleep(10);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Calculate()
    {
        for (var i = 0; i < 10; i++)
        {
            Work.Burn(500000);
            last = new byte[100];
        }
    }
}

/// <summary>Nothing.</summary>
sealed class Idle : Trouble
{
    public Idle() : base("idle", 0)
    {
    }

    public override void Round(int thread) { }
}

/// <summary>Two threads of which each has the lock that the other one waits for, and others behind them.</summary>
sealed class Deadlock : Trouble
{
    readonly object orders = new object();
    readonly object stock = new object();
    readonly ManualResetEvent both = new ManualResetEvent(false);
    int locked;

    public Deadlock() : base("deadlock", 4)
    {
    }

    public override void Round(int thread)
    {
        switch (thread)
        {
            case 0:
                TakeOrder();
                break;
            case 1:
                CountStock();
                break;
            case 2:
                both.WaitOne();
                ListOrders();
                break;
            default:
                both.WaitOne();
                Task.Run(new Action(ListOrders)).Wait();
                break;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void TakeOrder()
    {
        lock (orders)
        {
            WaitForBoth();
            lock (stock)
            {
                Work.Burn(1);
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void CountStock()
    {
        lock (stock)
        {
            WaitForBoth();
            lock (orders)
            {
                Work.Burn(1);
            }
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void ListOrders()
    {
        lock (orders)
        {
            Work.Burn(1);
        }
    }

    void WaitForBoth()
    {
        if (Interlocked.Increment(ref locked) == 2)
        {
            both.Set();
        }

        both.WaitOne();
    }
}
