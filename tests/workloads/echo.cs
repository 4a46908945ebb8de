// A server that echoes what a client sends over TCP, both in one process: a request is two switches or
// more, and little else.
// usage: echo [--seconds S]. Prints a line `ready`, at the end the number of requests (`rounds`).
using System;
using System.Diagnostics;
using System.Globalization;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;

static class Echo
{
    const int Clients = 4;

    static async Task Serve(Socket socket)
    {
        var buffer = new ArraySegment<byte>(new byte[64]);
        for (;;)
        {
            int length = await socket.ReceiveAsync(buffer, SocketFlags.None);
            if (length == 0)
                return;
            await socket.SendAsync(new ArraySegment<byte>(buffer.Array, 0, length), SocketFlags.None);
        }
    }

    static async Task Accept(Socket listener)
    {
        for (;;)
        {
            var socket = await listener.AcceptAsync();
            socket.NoDelay = true;
            Task ignored = Serve(socket);
        }
    }

    static int Main(string[] arguments)
    {
        double seconds = 4;
        if (arguments.Length == 2 && arguments[0] == "--seconds")
            seconds = double.Parse(arguments[1], CultureInfo.InvariantCulture);
        else if (arguments.Length != 0)
        {
            Console.Error.WriteLine("usage: echo [--seconds S]");
            return 2;
        }
        var listener = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        listener.Bind(new IPEndPoint(IPAddress.Loopback, 0));
        listener.Listen(16);
        Task server = Accept(listener);
        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + Process.GetCurrentProcess().Id + "}");
        long rounds = 0;
        var clock = Stopwatch.StartNew();
        var clients = new Thread[Clients];
        for (int i = 0; i < Clients; i++)
        {
            clients[i] = new Thread(() =>
            {
                var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
                socket.NoDelay = true;
                socket.Connect(listener.LocalEndPoint);
                var buffer = new byte[64];
                long own = 0;
                for (; clock.Elapsed.TotalSeconds < seconds; own++)
                {
                    socket.Send(buffer, 0, 1, SocketFlags.None);
                    socket.Receive(buffer);
                }
                Interlocked.Add(ref rounds, own);
            }) { Name = "client-" + i };
            clients[i].Start();
        }
        foreach (var client in clients)
            client.Join();
        Console.WriteLine("{\"event\":\"done\",\"rounds\":" + rounds + "}");
        return 0;
    }
}
